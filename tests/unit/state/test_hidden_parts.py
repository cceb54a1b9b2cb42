"""What keeps its parts to itself arrives where it was: pairs, sort keys, views, mapped memory, errors."""

# ruff: noqa: E501 (a case is one line)

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.support.notebook import Notebook, pair


def moved(*cells: str) -> dict[str, Any]:
    """Run cells on three replicas by turns; return the namespace of the next one."""
    chunks: dict[str, bytes] = {}
    replicas = [Notebook(f"r{number}", chunks) for number in (1, 2, 3)]
    for seq, source in enumerate(cells, start=1):
        executor = replicas[seq % 3]
        assert executor.take().failed == ()
        delta = executor.run(source, seq)
        assert [pin for component in delta.components for pin in component.pins] == []
        for other in replicas:
            if other is not executor:
                assert other.take(delta).failed == ()
    return replicas[(len(cells) + 1) % 3].namespace


def test_a_pairwise_iterator_part_way_goes_on() -> None:
    steps = ["got.append(next(p)); plain = next(it)", *["got.append(next(p))"] * 2]
    space = moved("from itertools import *\nit = iter(range(9)); p = pairwise(it); got = []", *steps)
    assert space["got"] == [(0, 1), (1, 3), (3, 4)]
    assert list(space["p"]) == [(4, 5), (5, 6), (6, 7), (7, 8)]
    assert list(space["it"]) == []


def test_cmp_to_key_functions_and_their_keys_arrive() -> None:
    space = moved("import functools\nkey = functools.cmp_to_key(lambda a, b: b - a); five = key(5)", "x = 1")
    assert sorted([1, 3, 2], key=space["key"]) == [3, 2, 1]
    assert space["five"] < space["key"](4)


def test_a_json_decoder_of_ones_own_arrives() -> None:
    space = moved("import json\nd = json.JSONDecoder(object_hook=lambda o: sorted(o))", "x = 1")
    assert space["d"].decode('{"b": 1, "a": 2}') == ["a", "b"]


def test_memoryviews_of_several_dimensions_and_of_none_arrive() -> None:
    space = moved(
        "import array\nraw = bytearray(24); grid = memoryview(raw).cast('h', (4, 3)); low = grid[2:]\n"
        "back = grid[::-2].toreadonly(); one = memoryview(raw)[:4].cast('i', ())\n"
        "of_array = array.array('h', range(8)); cube = memoryview(of_array).cast('B').cast('h', (2, 2, 2))",
        "grid[2, 1] = 5; low[1, 2] = 6; cube[1, 0, 1] = 77",
        "one[()] = 65537",
    )
    assert space["grid"].tolist() == [[1, 1, 0], [0, 0, 0], [0, 5, 0], [0, 0, 6]]
    assert space["low"].tolist() == [[0, 5, 0], [0, 0, 6]]
    assert space["back"].tolist() == [[0, 0, 6], [0, 0, 0]] and space["back"].readonly
    assert space["of_array"][5] == 77 and space["cube"].obj is space["of_array"]


def test_memoryviews_of_arrays_of_numpy_show_themselves_as_before() -> None:
    pytest.importorskip("numpy", reason="the test is about its arrays")
    space = moved(
        "import numpy as np\na = np.arange(6.).reshape(2, 3); whole = memoryview(a); row = whole[1:]\n"
        "turned = memoryview(a.T); rows = np.zeros((2, 2), 'i4,f8'); fields = memoryview(rows)[1:]",
        "whole[0, 0] = 5; row[0, 0] = 8",
        "turned[2, 1] = 9; rows['f1'][1] = 2",
    )
    assert space["a"].tolist() == [[5, 1, 2], [8, 4, 9]] and space["whole"].obj is space["a"]
    assert space["turned"].tolist() == [[5, 8], [1, 4], [2, 9]]
    assert bytes(space["fields"]) == space["rows"][1:].tobytes()


def test_the_buffer_of_a_bytes_io_stays_tied_to_it() -> None:
    space = moved("import io\nf = io.BytesIO(b'abc'); v = f.getbuffer()", "v[0] = 90; w = v[1:]", "w[0] = 89")
    assert space["f"].getvalue() == b"ZYc"
    with pytest.raises(BufferError):
        space["f"].truncate(1)
    space["v"].release()
    space["w"].release()
    assert space["f"].truncate(1) == 1


def test_iterators_that_unpack_values_go_on() -> None:
    space = moved(
        "import struct\nraw = bytearray(range(8)); it = struct.iter_unpack('<h', raw); first = next(it)\n"
        "done = struct.iter_unpack('b', b'a'); end = [*done]",
        "raw[4] = 9; second = next(it)",
    )
    assert (space["second"], [*space["it"]], [*space["done"]]) == ((770,), [(1289,), (1798,)], [])


def test_memoryviews_that_skip_and_one_that_was_released_arrive() -> None:
    space = moved(
        "raw = bytearray(range(12)); two = memoryview(raw)[1::2]; back = memoryview(raw)[::-3]\n"
        "gone = memoryview(raw); gone.release()",
        "two[0] = 99",
        "back[0] = 77",
    )
    assert space["raw"][1] == 99 and space["raw"][11] == 77
    assert space["two"].tolist() == [99, 3, 5, 7, 9, 77]
    assert space["back"].tolist() == [77, 8, 5, 2]
    assert repr(space["gone"]).startswith("<released memory")


def test_mapped_memory_without_a_file_and_with_one_arrives(tmp_path: Path) -> None:
    file = tmp_path / "mapped"
    file.write_bytes(bytes(8192))
    space = moved(
        f"import mmap\nfree = mmap.mmap(-1, 100_000); free.write(b'abc')\n"
        f"with open({str(file)!r}, 'r+b') as f: filed = mmap.mmap(f.fileno(), 0)",
        "free[0:1] = b'A'; filed[0:2] = b'hi'",
        "filed[1:2] = b'o'",
    )
    assert space["free"][:4] == b"Abc\0" and space["free"].tell() == 3 and len(space["free"]) == 100_000
    assert space["filed"][:3] == b"ho\0"
    assert file.read_bytes()[:3] == b"ho\0"


def test_exceptions_keep_slots_names_and_the_marks_below_their_lines() -> None:
    space = moved(
        "class E(Exception):\n  __slots__ = ('s',)\ne = E(1); e.s = [e]\n"
        "try: [1].nothing\nexcept AttributeError as error: kept = error",
        "x = 1",
    )
    assert space["e"].s[0] is space["e"]
    kept = space["kept"]
    assert (kept.name, kept.obj) == ("nothing", [1])
    position = list(kept.__traceback__.tb_frame.f_code.co_positions())[kept.__traceback__.tb_lasti // 2]
    assert position == (4, 4, 5, 16)


@pytest.mark.parametrize(
    ("made", "check"),
    [
        ("UnicodeDecodeError('utf-8', b'ab', 0, 1, 'bad'); e.reason = 'mine'; e.start = 1", "(e.reason, e.start, e.args[2]) == ('mine', 1, 0)"),
        ("SyntaxError('m', ('f', 1, 2, 'text', 1, 3)); e.lineno += 10; e.text = None", "(e.lineno, e.text, e.msg, e.end_offset) == (11, None, 'm', 3)"),
        ("StopIteration(1); e.value = box", "e.value is box and e.args == (1,)"),
        ("SystemExit(1); e.code = 'why'", "e.code == 'why'"),
        ("OSError(2, 'gone', 'f'); e.errno = 5; e.filename = None", "(e.errno, e.filename, e.strerror) == (5, None, 'gone')"),
        ("ImportError('m', name='n'); e.msg = 'other'; e.path = box", "(str(e), e.name, e.path) == ('other', 'n', box)"),
        ("ImportError('m', name='n'); e.args += (1,)", "(e.args, e.name, e.path) == (('m', 1), 'n', None)"),
        ("NameError('m', name='n'); e.name = None", "e.name is None"),
        ("type('E', (OSError,), {'filename': 'f'})(1); e.filename = None", "e.filename is None and type(e).filename == 'f'"),
        ("type('E', (KeyError, AttributeError), {})(1); e.obj = box", "e.obj is box and e.args == (1,)"),
        ("ExceptionGroup('m', [OSError(1, 'a')]); e.exceptions[0].strerror = 'b'", "e.message == 'm' and e.exceptions[0].strerror == 'b'"),
    ],
)  # fmt: skip
def test_hidden_attributes_of_an_exception_arrive(made: str, check: str) -> None:
    assert eval(check, moved(f"box = [1]; e = {made}", "again = 1"))


@pytest.mark.parametrize(
    ("define", "check"),
    [
        ("import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass E(Exception):\n  x: int", "(e.x, e.args, e == E(3)) == (3, (3,), True)"),
        ("class E(Exception):\n  def __init__(self, x): self.code = x\n  code = property(lambda s: s.__dict__['code'], lambda s, v: s.__dict__.update(code=v * 2))",
         "e.code == 6"),
        ("seen = []\nclass E(Exception):\n  def __init__(self, x): self.x = x\n  def __setattr__(self, name, value): seen.append(name); object.__setattr__(self, name, value)",
         "(e.x, seen) == (3, ['x'])"),
        ("seen = []\nclass E(Exception):\n  def __getattribute__(self, name):\n    if name in ('__cause__', '__traceback__'): seen.append(name)\n    return object.__getattribute__(self, name)",
         "seen == []"),
        ("class E(AttributeError):\n  def __init__(self, x): super().__init__(x); self.x = x; self.name = 'n'\n  def __setattr__(self, name, value): object.__setattr__(self, name, [value])",
         "(e.x, e.name, e.args) == ([3], ['n'], (3,))"),
        ("class E(Exception):\n  def __init__(self, x): self.x = x\n  def __setstate__(self, state): self.__dict__.update(state, told=True)",
         "e.x == 3 and vars(e) == {'x': 3}"),
    ],
)  # fmt: skip
def test_an_exception_is_rebuilt_without_its_class_being_asked_to_set_anything(
    define: str, check: str
) -> None:
    raised = "\ntry: raise E(3) from OSError('why')\nexcept E as error: e = error; box = [error]"
    space = moved(define + raised, "again = 1", "more = 2")
    assert eval(check, space)
    error = BaseException.__dict__
    assert space["box"][0] is space["e"] and str(error["__cause__"].__get__(space["e"])) == "why"
    assert error["__traceback__"].__get__(space["e"]).tb_lineno == define.count("\n") + 2


def test_the_dictionary_of_a_function_stays_shared() -> None:
    space = moved("def f(): pass\nd = vars(f)", "f.x = 1", "d['y'] = 2")
    assert space["f"].x == 1 and space["f"].y == 2 and vars(space["f"]) is space["d"]


def test_a_groupby_whose_group_has_taken_its_item_goes_on() -> None:
    space = moved(
        "import itertools\ngr = itertools.groupby([1, 1, 2, 2, 3]); k, g = next(gr); got = [next(g)]",
        "got += list(g)",
        "k, g = next(gr); got.append((k, next(g)))",
        "first = list(g)",
    )
    assert space["got"] == [1, 1, (2, 2)]
    assert space["first"] == [2]
    assert [(key, list(group)) for key, group in space["gr"]] == [(3, [3])]


def test_the_functions_in_a_traceback_keep_their_names_and_arguments() -> None:
    space = moved(
        "class A:\n  def m(self, a, /, *rest, k, **more): return sum(x / a for x in rest)\n"
        "try: A().m(0, 1, k=2)\nexcept ZeroDivisionError as caught: error = caught",
        "again = 1",
    )
    codes = []
    traceback = space["error"].__traceback__
    while traceback is not None:
        codes.append(traceback.tb_frame.f_code)
        traceback = traceback.tb_next
    code = codes[-2]
    assert [one.co_qualname for one in codes[-2:]] == ["A.m", "A.m.<locals>.<genexpr>"]
    assert (code.co_varnames, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount) == (
        ("self", "a", "k", "rest", "more"), 2, 2, 1,
    )  # fmt: skip
    assert "did not travel" in repr(error_locals(space["error"])["a"])


def test_a_frame_that_caught_its_exception_says_where_it_ended() -> None:
    space = moved(
        "errors = []\nfor i in range(1):\n  try: [][i]\n  except IndexError as e: errors.append(e)\nend = 1",
        "again = 1",
    )
    traceback = space["errors"][0].__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    assert (traceback.tb_lineno, traceback.tb_frame.f_lineno) == (3, 5)


def error_locals(error: BaseException) -> dict[str, Any]:
    """Return the local variables of the frame that called the one in which an error was raised."""
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames[-2].f_locals


def test_readers_and_writers_of_csv_go_on_where_they_were() -> None:
    space = moved(
        "import csv, io\nb = io.StringIO(); w = csv.writer(b, delimiter=';', quoting=csv.QUOTE_ALL)\n"
        "w.writerow('ab')\n"
        "r = csv.reader(io.StringIO('x|y\\n\"1\\n2\"|3\\n4|5\\n'), delimiter='|'); first = next(r)",
        "w.writerow([1, 'c;']); second = next(r), r.line_num",
        "third = list(r)",
    )
    assert space["b"].getvalue() == '"a";"b"\r\n"1";"c;"\r\n'
    assert (space["second"], space["third"]) == ((["1\n2", "3"], 3), [["4", "5"]])
    assert (space["r"].line_num, space["r"].dialect.delimiter) == (4, "|")


def test_a_reader_of_csv_over_a_closed_file_stays(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    opened = (
        f"import csv\nf = open({str(tmp_path / 't.csv')!r}, newline=''); r = csv.reader(f); first = next(r)"
    )
    space = moved(
        opened + "; f.close()",
        "x = 0",
        "week = __import__('datetime').date(2024, 2, 28).isocalendar()",
        "x = 1",
    )
    assert (space["first"], space["r"].line_num, space["f"].closed) == (["a", "b"], 1, True)
    assert (space["week"].week, type(space["week"]).__name__) == (9, "IsoCalendarDate")


def test_a_reversed_goes_on_over_a_sequence_that_shrank_and_grew() -> None:
    space = moved(
        "class Q:\n  def __init__(s): s.d = [1, 2, 3]\n  def __getitem__(s, i): return s.d[i]\n"
        "  def __len__(s): return len(s.d)\n"
        "q = Q(); r = reversed(q); s = reversed(q); t = reversed((1, 2)); got = [next(r), next(t)]; list(s)",
        "q.d.clear()",
        "q.d.extend('abc')",
    )
    assert space["got"] == [3, 2]
    assert (list(space["r"]), list(space["s"]), list(space["t"])) == (["b", "a"], [], [1])


def test_an_islice_that_is_over_stays_over() -> None:
    space = moved("import itertools\nx = [1, 2]; i = itertools.islice(x, 1); list(i)", "x.append(3)", "y = 1")
    assert list(space["i"]) == []
    with warnings.catch_warnings(action="ignore"):  # From Python 3.12 on, of being asked.
        assert space["i"].__reduce__()[1][1:] == (0,)


def test_slots_of_an_array_and_its_views_arrive() -> None:
    pytest.importorskip("numpy")
    space = moved(
        "import numpy as np\nclass S(np.ndarray):\n  __slots__ = 'unit', 'log'\n"
        "a = np.arange(4.).view(S); a.unit = 'm'; a.log = [a]; v = a[1:]; b = np.asarray(a)",
        "v[0] = 9",
        "b[3] = -1",
    )
    assert (space["a"].tolist(), space["v"].tolist()) == ([0, 9, 2, -1], [9, 2, -1])
    assert space["a"].unit == "m" and space["a"].log[0] is space["a"] and type(space["v"]).__name__ == "S"
    assert not hasattr(space["v"], "unit")


def test_a_token_resets_its_variable_after_moves() -> None:
    space = moved(
        "import contextvars\nv = contextvars.ContextVar('v'); w = contextvars.ContextVar('w', default=0)\n"
        "first = v.set([1]); second = v.set(2); third = w.set(3); w.reset(third)",
        "same = first.var is v, second.old_value, first.old_value is first.MISSING, w.get()",
        "v.reset(second); now = v.get()\n"
        "try: w.reset(third)\nexcept RuntimeError as error: text = str(error)[:20]",
        "v.reset(first); unset = v.get('unset')",
    )
    assert space["same"] == (True, [1], True, 0)
    assert (space["now"], space["unset"]) == ([1], "unset")
    assert space["text"].startswith("<Token used var=")


def test_a_text_in_memory_knows_which_newlines_were_in_it() -> None:
    space = moved(
        "import io\nb = io.StringIO('a\\r\\nb\\nc', newline=None); first = b.readline(); b.mark = [b]\n"
        "raw = io.StringIO('x\\r', newline=''); none = io.StringIO('y', newline=None)",
        "seen = b.newlines, raw.newlines, none.newlines, b.tell(); second = b.readline()",
        "b.write('d\\r')",
    )
    assert space["seen"] == (("\n", "\r\n"), "\r", None, 2)
    assert (space["first"], space["second"], space["b"].getvalue()) == ("a\n", "b\n", "a\nb\nd\n")
    assert (space["b"].newlines, space["raw"].getvalue()) == (("\r", "\n", "\r\n"), "x\r")
    assert space["b"].mark == [space["b"]]


def test_a_lock_or_queue_that_waited_in_a_loop_takes_another() -> None:
    space = moved(
        "import asyncio\nlock, queue = asyncio.Lock(), asyncio.Queue(); lock._loop = queue._loop = object()\n"
        "queue.put_nowait(lock)",
        "again = 1",
    )
    assert (space["lock"]._loop, space["queue"]._loop) == (None, None)
    assert space["queue"].get_nowait() is space["lock"]


def test_a_generator_that_has_not_begun_is_made_again() -> None:
    space = moved(
        "def g(a, /, b, *rest, c=3, **more): log.append(a); yield a, b, rest, c, more\n"
        "def outer():\n  n = [0]\n  def inner(): yield n\n  return inner, n\n"
        "inner, n = outer(); log = []; i = inner(); x = g(log, 2, 5, c=n, z=1); e = (k * y for y in log)",
        "log.append('b'); k = 2",
        "started = list(log)",
    )
    assert space["started"] == ["b"]
    log, n = space["log"], space["n"]
    assert next(space["x"]) == (log, 2, (5,), n, {"z": 1})
    assert log == ["b", log]
    assert next(space["i"]) is n
    assert next(space["e"]) == "bb"


def test_items_of_a_simple_queue_stay_in_it() -> None:
    space = moved(
        "import queue\njob = [1]; q = queue.SimpleQueue(); empty = queue.SimpleQueue()\n"
        "for item in ('first', job, q, None): q.put(item)",
        "first = q.get(); job.append(2)",
        "q.put(job)",
        "second = q.get()",
    )
    q = space["q"]
    assert (space["first"], space["second"], q.qsize(), space["empty"].qsize()) == ("first", [1, 2], 3, 0)
    assert space["second"] is space["job"]
    assert [q.get() is item for item in (q, None, space["job"])] == [True] * 3


def test_thread_local_data_keeps_what_all_threads_have_in_its_slots() -> None:
    space = moved(
        "import threading\nclass L(threading.local):\n  __slots__ = 'all',\n  own = 1\n"
        "local = L(); local.all = [1]; local.own = 2; found = []",
        "local.all.append(2)\n"
        "t = threading.Thread(target=lambda: found.append((local.all, local.own))); t.start(); t.join()",
        "again = 1",
        "local.own += len(found)",
    )
    assert space["found"] == [([1, 2], 1)]
    assert (space["local"].own, space["found"][0][0] is space["local"].all) == (3, True)


CONTEXT = (
    "import contextvars, decimal\nwho = contextvars.ContextVar('who', default='none')\n"
    "seen = contextvars.ContextVar('seen'); token = seen.set([1]); who.set('outer')\n"
    "copied = contextvars.Context(); copied.run(seen.set, seen.get()); empty = contextvars.Context()\n"
    "def act(name): who.set(name); seen.get().append(name); return who.get()\n"
)


def test_a_copied_context_has_the_values_of_its_variables_and_the_variables_are_the_notebooks() -> None:
    one, two = pair()
    two.take(one.run(CONTEXT + "copied.run(act, 'inner')", 1))
    one.take(two.run("again = copied.copy(); again.run(act, 'again'); empty.run(who.set, 'lonely')", 2))
    told = "[who.get(), copied[who], again[who], empty[who], len(empty), seen.get()]"
    assert eval(told, one.namespace) == ["outer", "inner", "again", "lonely", 1, [1, "inner", "again"]]
    assert eval("copied[seen] is again[seen] is seen.get()", one.namespace)


def test_a_copied_context_computes_as_it_did_and_has_what_libraries_keep_in_it() -> None:
    one, two = pair()
    two.take(one.run(CONTEXT + "copied.run(decimal.setcontext, decimal.Context(prec=3))", 1))
    assert eval("str(copied.run(lambda: decimal.Decimal(1) / 3))", two.namespace) == "0.333"
    assert eval("decimal.getcontext().prec", two.namespace) == 28


@pytest.mark.parametrize("text", ["one\ntwo\nthree\n", "wräp\nzwölf\ndrei €\n"])
def test_a_text_file_over_bytes_in_memory_is_read_on_where_it_was(text: str) -> None:
    space = moved(
        f"import io\ntext = {text!r}; raw = io.BytesIO(text.encode()); r = io.TextIOWrapper(raw, 'utf-8'); r.mark = [r]\n"
        "fresh = io.TextIOWrapper(io.BytesIO(text.encode()), 'utf-8'); b = io.BufferedReader(io.BytesIO(text.encode()))",
        "first = r.readline(); place = raw.tell(); head = b.read(4)",
        "second = next(r); same = raw.tell() == place, raw.read()",
        "rest = r.read(); whole = fresh.read(); tail = b.read()",
    )
    assert [space["first"], space["second"], space["rest"]] == text.splitlines(keepends=True)
    assert (space["whole"], space["head"] + space["tail"]) == (text, text.encode())
    assert (space["same"], space["r"].buffer is space["raw"]) == ((True, b""), True)
    assert space["r"].mark == [space["r"]]


def test_a_text_file_over_bytes_in_memory_is_written_on_and_flushed_when_it_says_so() -> None:
    space = moved(
        "import io\nraw = io.BytesIO(); w = io.TextIOWrapper(raw, 'utf-8'); w.write('plain, '); w.write('grün, ')",
        "before = raw.getvalue(); w.write('more')",
        "w.flush(); after = raw.getvalue().decode(); w.write('!')",
        "end = raw.getvalue(); w.close() if 0 else w.seek(0); whole = w.read()",
    )
    assert (space["before"], space["after"]) == (b"", "plain, grün, more")
    assert space["end"] == "plain, grün, more".encode()
    assert space["whole"] == "plain, grün, more!"
