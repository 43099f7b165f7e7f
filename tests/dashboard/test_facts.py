from server.dashboard.rows.machine_facts import differing_facts, readable_facts


def test_known_facts_come_first_and_unknown_ones_are_kept() -> None:
    facts = readable_facts({"zeta": 1, "flags": ["erms", "fsrm"], "virtual": True, "model_name": "Some CPU"})
    assert [fact.title for fact in facts] == ["CPU", "virtual", "CPU flags", "zeta"]
    assert [fact.text for fact in facts] == ["Some CPU", "yes", "erms fsrm", "1"]


def test_facts_of_any_shape_become_text() -> None:
    nested = readable_facts({"core_types": [{"name": "big", "cpus": "0-3"}], "hypervisor": None})
    assert [fact.text for fact in nested] == ["", "name big, cpus 0-3"]
    assert readable_facts(["not", "a", "mapping"]) == ()


def test_parts_that_nobody_told_are_not_named() -> None:
    (fact,) = readable_facts({"frequency": {"driver": "", "max_khz": None}})
    assert (fact.title, fact.text, fact.lines) == ("frequency", "", ())
    (fact,) = readable_facts({"alternatives": {"chosen_by": {}, "cleared": [], "detected": []}})
    assert (fact.text, fact.lines) == ("", ())


def test_endless_fact_is_cut() -> None:
    (fact,) = readable_facts({"cmdline": "x" * 100_000})
    assert len(fact.text) < 5_000


def test_boots_that_saw_other_flags_are_told_apart_and_their_own_releases_are_not() -> None:
    first = {"flags": ["erms"], "kernel_release": "6.1.1", "memory_kb": 5}
    second = {"flags": [], "kernel_release": "6.1.2", "memory_kb": 5}
    assert differing_facts([first, {}, second]) == ("CPU flags",)
    assert differing_facts([]) == ()
