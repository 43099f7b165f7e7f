"""Where builds of whole kernels in tests keep what they compile."""

from pathlib import Path

_KEPT = Path(__file__).resolve().parents[1] / ".cache" / "ccache"


def compiler_cache(empty: Path) -> dict[str, str]:
    """The cache that `make demo` has filled. If there is none, ccache is off: to fill one takes half as long as to
    compile, and what is compiled here is compiled once.
    """
    if _KEPT.is_dir():
        return {"TIDEMARK_CCACHE_DIR": str(_KEPT)}
    empty.mkdir(parents=True, exist_ok=True)
    (empty / "ccache.conf").write_text("disable = true\n")
    return {"TIDEMARK_CCACHE_DIR": str(empty)}
