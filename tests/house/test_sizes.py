"""Files and functions stay small enough to be read at once."""

from tests.house.sources import functions, length, line_count, name_of, python_files

LONGEST_FILE = 500
LONGEST_FUNCTION = 60
LONGEST_OF_NINE_IN_TEN = 30


def test_no_file_is_longer_than_five_hundred_lines() -> None:
    long = {name_of(path): line_count(path) for path in python_files() if line_count(path) > LONGEST_FILE}
    assert long == {}


def test_no_function_is_longer_than_sixty_lines() -> None:
    long = {
        f"{name_of(path)}:{function.name}": length(function)
        for path in python_files()
        for function in functions(path)
        if length(function) > LONGEST_FUNCTION
    }
    assert long == {}


def test_nine_functions_in_ten_have_thirty_lines_or_less() -> None:
    lengths = sorted(length(function) for path in python_files() for function in functions(path))
    assert lengths[len(lengths) * 9 // 10] <= LONGEST_OF_NINE_IN_TEN


def test_every_function_says_what_it_takes_and_gives() -> None:
    bare = [
        f"{name_of(path)}:{function.name}"
        for path in python_files()
        for function in functions(path)
        if function.returns is None
        or any(
            argument.annotation is None and argument.arg not in {"self", "cls"}
            for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        )
    ]
    assert bare == []
