"""Recorded work on the disk: every form, however packed, becomes the same records; bad rows are told."""

from __future__ import annotations

import gzip
import lzma
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from replkernel_scheduler.sim import forms, trace_file
from replkernel_scheduler.sim.errors import BadRow, TraceUnreadable
from replkernel_scheduler.sim.records import AHEAD_S, Cell, Job, Pattern, Record, Session
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.trace_file import TraceFile

SWF = """\
; Computer: made up
  1  10 5 100 4 -1 2097152 4 300 -1 1 7 7 -1 0 -1 -1 -1
  2  20 0  -1 4 -1 -1 4 300 -1 5 7 7 -1 1 -1 -1 -1
  3  30 0  50 2 -1 -1 2 300 -1 0 8 8 -1 0 -1 -1 -1 -1 -1 -1 5 6 2 10 9 20
"""
HELIOS_PUBLISHED = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
11,u1,vcA,8,48,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:20,2020-04-01 00:01:20,60,10
12,u2,vcB,0,16,1,FAILED,2020-04-01 00:00:11,2020-04-01 00:00:12,2020-04-01 00:00:20,8,1
"""
HELIOS_REDUCED = "job_id,arrival_s,service_sec,gpu_count\n363167#0,0.0,172800.0,32\n"
HELIOS_REWRITTEN = """\
# a slice
job_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,walltime_limit_s,final_status
5,uH,vcv,finetune,5835000000,128,,16,24.0,24.0,CANCELED
"""
PHILLY_POLLUX = """\
timestamp,duration,num_gpus,cluster
2017-10-09 00:00:15,66.0,4,11cb48
2017-10-09 00:00:16,0.0,1,11cb48
2017-10-09 00:00:05,30.0,1,6214e9
"""
ALIBABA_PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p17,88000,327680,8,1000,,Burstable,Succeeded,9437,10438,9438
p22,4000,16384,1,220,nan,BE,Running,9679,9979,9679
p35,16000,0,1,1000,V100M16|V100M32,LS,Running,9967,10033,9973
p40,1000,0,0,0,,LS,Running,9967,9999,9973
p41,1000,0,1,1000,,LS,Pending,9967,9999,
p42,1000,0,1,1000,,LS,Failed,9967,9973,9973
"""
PHILLY_TABLE = """\
#job id,arrival time (sec),topology,shape,size,duration (sec)
0,0.0,CLOS,1,1,3613033.0
"""
PHILLY_LOG = """\
[{"status": "Pass", "vc": "ee9", "jobid": "application_1", "attempts": [
   {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:09", "detail": [
      {"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu5"]}]},
   {"start_time": "2017-10-07 02:00:00", "end_time": "2017-10-07 02:00:30", "detail": [
      {"ip": "m3", "gpus": ["gpu\\"}0"]}]}],
  "submitted_time": "2017-10-07 01:11:00", "user": "a83"},
 {"status": "Killed", "vc": "ee9", "jobid": "application_2", "attempts": [],
  "submitted_time": "2017-10-07 01:11:05", "user": "a83"}]
"""
ADOBE = """\
job_id,num_gpu,submit_time,iterations,model_name,duration,interval
0,1,100,0,vgg,2,0
1,4,110,0,vgg,3,0
2,8,50,0,vgg,1,0
3,8,50,0,vgg,4,0
"""
OWN_CELLS = """\
session,start_s,duration_s,num_gpu,session_start_s,session_end_s,user
b,60,300,8,5,1000,eve
a,900,120,4,,,
a,100,600,2,,,
"""
OWN_JOBS = "job,arrival_s,duration_s,gpus,user,requested_s\nj1,5,60,2,eve,100\nj2,6,0,2,eve,100\n"


def day(seconds: float, date: int) -> float:
    return date * 86_400.0 + seconds


EXPECTED: dict[str, tuple[str, str, int, list[Record]]] = {
    "swf": (SWF, "swf", 1, [
        Job("1", 10, 100, 4, requested_s=300, memory_gb=2, user="7", queue="0", state="completed"),
        Job("3", 30, 50, 2, requested_s=300, user="8", queue="0", state="failed",
            pattern=Pattern(5, 6, (10, 9, 20))),
    ]),
    "helios as published": (HELIOS_PUBLISHED, "helios", 1, [
        Job("11", day(10, 18_353), 60, 8, nodes=1, user="u1", queue="vcA", state="completed"),
    ]),
    "helios reduced": (HELIOS_REDUCED, "helios", 0, [Job("363167#0", 0, 172_800, 32)]),
    "helios rewritten": (HELIOS_REWRITTEN, "helios", 0, [
        Job("5", 5835, 24, 128, nodes=16, user="uH", queue="vcv", state="canceled"),
    ]),
    "philly table": (PHILLY_TABLE, "philly-table", 0, [Job("0", 0, 3_613_033, 1)]),
    "philly log": (PHILLY_LOG, "philly-log", 1, [
        Job("application_1", day(4260, 17_446), 90, 3, nodes=2, user="a83", queue="ee9", state="pass"),
    ]),
    "philly by pollux": (PHILLY_POLLUX, "philly-pollux", 1, [
        Job("2", day(15, 17_448), 66, 4, queue="11cb48"), Job("4", day(5, 17_448), 30, 1, queue="6214e9"),
    ]),
    "alibaba pods": (ALIBABA_PODS, "alibaba-pods", 3, [
        Job("p17", 9437, 1000, 8, queue="Burstable", state="succeeded", cpus=88, host_memory_gb=320),
        Job("p22", 9679, 300, 1, queue="BE", state="running", milli=220, cpus=4, host_memory_gb=16),
        Job("p35", 9967, 60, 1, queue="LS", state="running", gpu_models=("V100M16", "V100M32"), cpus=16),
    ]),
    "adobe": (ADOBE, "adobe-june", 0, [
        Session("0", 6000 - AHEAD_S, 6780, 4), Cell("0", 6000, 120, 1), Cell("0", 6600, 180, 4),
        Session("1", 3000 - AHEAD_S, 3060, 8), Cell("1", 3000, 60, 8),
        Session("2", 3000 - AHEAD_S, 3240, 8), Cell("2", 3000, 240, 8),
    ]),
    "our own cells": (OWN_CELLS, "csv", 0, [
        Session("b", 5, 1000, 8, "eve"), Session("a", 100 - AHEAD_S, 1020, 4),
        Cell("b", 60, 300, 8), Cell("a", 900, 120, 4), Cell("a", 100, 600, 2),
    ]),
    "our own jobs": (OWN_JOBS, "csv", 1, [Job("j1", 5, 60, 2, requested_s=100, user="eve")]),
}  # fmt: skip
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: b"".join(
        [zstandard.ZstdCompressor().compress(part) for part in (data[:50], data[50:])]
    ),
}


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("name", EXPECTED)
def test_every_form_is_found_and_read_however_it_is_packed(tmp_path: Path, name: str, packing: str) -> None:
    text, form, empty, records = EXPECTED[name]
    path = tmp_path / f"trace{packing}"
    path.write_bytes(PACKERS[packing](text.encode()))
    file = TraceFile(path)
    assert forms.form_of(file) == form
    assert list(forms.read(file)) == records
    assert (file.empty, file.bad) == (empty, 0)


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
def test_a_packed_file_is_told_by_what_it_begins_with_whatever_it_is_called(
    tmp_path: Path, packing: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(PACKERS[packing](OWN_JOBS.encode()))
    assert len(list(forms.read(TraceFile(path)))) == 1


BAD = {
    "swf": (SWF + "4 ten 0 50 2 -1 -1 2 300 -1 0 8 8 -1 0 -1 -1 -1\n", 5, "column 2) is 'ten'"),
    "swf, a part of a processor": (
        SWF + "4 10 0 50 0.5 -1 -1 1 300 -1 0 8 8 -1 0 -1 -1 -1\n",
        5,
        "column 5) is 0.5, which is no whole number",
    ),
    "swf, too short": (SWF + "4 10 0\n", 5, "there are 3 columns"),
    "swf, phases": (
        SWF + "4 10 0 50 2 -1 -1 2 300 -1 0 8 8 -1 0 -1 -1 -1 -1 -1 -1 5 6 2 10 9 99\n",
        5,
        "phases take 129 s, and the job 50 s",
    ),
    "helios": (HELIOS_REDUCED + "7,5,x,1\n", 3, "service_sec is 'x'"),
    "helios, dates": (
        HELIOS_PUBLISHED + "13,u,v,1,1,1,FAILED,yesterday,,,8,1\n",
        4,
        "submit_time is 'yesterday', which is no date like",
    ),
    "philly": (PHILLY_TABLE + "1,0.0,CLOS,1,1.5,2\n", 3, "size is 1.5, which is no whole number"),
    "philly log": ('[{"status": "Pass"}]', 1, "it has no attempts, jobid, submitted_time"),
    "pollux": (PHILLY_POLLUX + "now,1.0,1,x\n", 5, "timestamp is 'now', which is no date like"),
    "alibaba": (ALIBABA_PODS + "p9,1,1,1,1000,,LS,Failed,1,x,1\n", 8, "deletion_time is 'x'"),
    "adobe": (ADOBE + "4,1,200\n", 6, "there are 3 columns, where the header has 7"),
    "our own": (OWN_CELLS + "a,-5,1,1,,,\n", 5, "start_s is -5, which is not from 0"),
    "our own sessions": (OWN_CELLS + "c,5,1,1,soon,,\n", 5, "session_start_s is 'soon'"),
    "nan": (OWN_JOBS + "j3,nan,1,1,,\n", 4, "arrival_s is nan, which is not from 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_told_with_file_and_line_or_left_out_and_counted(tmp_path: Path, name: str) -> None:
    text, line, reason = BAD[name]
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(BadRow) as told:
        list(forms.read(TraceFile(path)))
    assert (told.value.path, told.value.line) == (str(path), line)
    assert reason in told.value.reason
    assert "--skip-bad" in str(told.value)

    file = TraceFile(path, skip_bad=True)
    good = list(forms.read(file))
    assert (file.bad, len(file.bad_rows)) == (1, 1)
    assert reason in file.bad_rows[0]
    whole = tmp_path / "whole"
    whole.write_text("".join(text.splitlines(keepends=True)[: line - 1]))
    assert good == (list(forms.read(TraceFile(whole))) if line > 1 else [])


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
def test_a_file_that_was_cut_off_is_not_taken_for_a_short_one(tmp_path: Path, packing: str) -> None:
    rows = "".join(
        f"{number},{number}.5,{number * 7 % 1009 + 1},{number % 8 + 1}\n" for number in range(50_000)
    )
    path = tmp_path / f"trace{packing}"
    packed = PACKERS[packing](("job_id,arrival_s,service_sec,gpu_count\n" + rows).encode())
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TraceUnreadable, match="cannot be read after line"):
        list(forms.read(TraceFile(path)))


def test_a_log_may_be_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "LINE_MAX", 50)
    path = tmp_path / "log"
    path.write_text(PHILLY_LOG.replace("\n", " "))
    assert list(forms.read(TraceFile(path))) == EXPECTED["philly log"][3]


def test_a_log_that_ends_in_the_middle_of_a_job_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(PHILLY_LOG[:300])
    with pytest.raises(TraceUnreadable, match="ends in the middle of a job"):
        list(forms.read(TraceFile(path)))


def test_a_file_that_is_no_trace_is_told_with_the_forms_there_are(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("once upon a time\n")
    with pytest.raises(TraceUnreadable, match=r"none of the forms swf, .*csv.*'once upon a time'.*--form"):
        forms.form_of(TraceFile(path))
    path.write_text("")
    with pytest.raises(TraceUnreadable, match="it is empty"):
        forms.form_of(TraceFile(path))
    with pytest.raises(TraceUnreadable, match="is not there: check the path"):
        forms.form_of(TraceFile(tmp_path / "nowhere"))


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "LINE_MAX", 1000)
    path = tmp_path / "trace"
    path.write_text(HELIOS_REDUCED + "7" * 5000)
    with pytest.raises(TraceUnreadable, match="line 3: it is longer than 1000"):
        list(forms.read(TraceFile(path)))
    assert max(map(len, TraceFile(path).pieces())) == 1000


def test_a_long_trace_is_sorted_on_the_disk_read_twice_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    jobs = [Job(f"{number}", float(number * 7919 % 1000), 1.0, 1) for number in range(950)]
    with Spool(iter(jobs), run_max=100) as spool:
        assert any(tmp_path.iterdir())
        first, second = list(spool), list(spool)
        assert (len(spool), spool.first, spool.last, spool.work_gpu_s) == (950, 0.0, 999.0, 950.0)
    assert first == second == sorted(jobs, key=lambda job: job.at)
    assert not any(tmp_path.iterdir())


TRACES = Path(os.environ.get("REPLKERNEL_TRACES") or Path(__file__).parents[3] / "shared" / "traces")
REAL = {
    "adobe_sensei/sensei_june_60sec.csv": ("adobe-june", 339, 30_909, 0, 0),
    "adobe_sensei/adobe_17h5_reconstructed.csv": ("csv", 84, 931, 0, 0),
    "adobe_sensei/synthetic_17h5_seed0.csv": ("csv", 88, 1_875, 0, 0),
    "helios/helios_venus_gpu_jobs_125k.csv": ("helios", 0, 0, 125_303, 0),
    "helios/helios_venus_2vc_sept.csv": ("helios", 0, 0, 1_867, 0),
    "philly/philly_rfold_111k.csv": ("philly-table", 0, 0, 111_539, 10),
    "pwa/KTH-SP2-1996-2.1-cln.swf.xz": ("swf", 0, 0, 28_467, 9),
    "unilu_gaia/UniLu-Gaia-2014-1.swf.xz": ("swf", 0, 0, 51_771, 128),
    "unilu_gaia/UniLu-Gaia-2014-1_1762_alloced.swf.xz": ("swf", 0, 0, 51_771, 128),
    "unilu_gaia/UniLu-Gaia-2014-1_39473_alloced_rebuilt.swf.xz": ("swf", 0, 0, 51_771, 100),
}
LARGE = 50_000
"""Files of more rows take seconds each."""


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"there are no traces in {TRACES}: set REPLKERNEL_TRACES")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if max(told[1:4]) > LARGE else name
        for name, told in REAL.items()
    ],
)
def test_the_real_traces_are_read_to_the_last_row(name: str) -> None:
    if not (TRACES / name).is_file():
        pytest.skip(f"{TRACES / name} is not there: set REPLKERNEL_TRACES")
    file = TraceFile(TRACES / name)
    with Spool(forms.read(file)) as spool:
        found = (forms.form_of(TraceFile(file.path)), spool.sessions, spool.cells, spool.jobs, file.empty)
        times = [record.at for record in spool]
    assert found == REAL[name]
    assert times == sorted(times)
    assert file.bad == 0


@pytest.mark.parametrize(
    ("content", "form", "told"),
    [
        ("a,b\n1,2\n", "csv", "its columns are 'a,b'; it is a CSV file with the columns session,start_s,"),
        ("", "csv", "it is empty"),
        ("session,start_s,duration_s\na,0,1\n", "csv", "its header lacks num_gpu of"),
        ("session,start_s,duration_s\na,0,1\n", None, "its header lacks num_gpu of"),
        ("Session,Start_s,Duration_s,Num_gpu\n", None, "its header lacks duration_s, num_gpu, session,"),
        ("session;start_s;duration_s;num_gpu\n", None, "its columns are separated by semicolons"),
        ("job\tarrival_s\tduration_s\tgpus\n", None, "its columns are separated by tabs"),
        ("a,b\n1,2\n", None, "its first line is 'a,b'. Name the form with --form, or write a CSV file"),
        ("a,b\n1,2\n", "helios", "has not the form helios: its columns are 'a,b'"),
    ],
)
def test_a_file_of_another_form_says_what_it_lacks(
    tmp_path: Path, content: str, form: str | None, told: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(content)
    with pytest.raises(TraceUnreadable) as error:
        list(forms.read(TraceFile(path, skip_bad=True), form))
    assert told in str(error.value)


@pytest.mark.parametrize("form", [None, "csv"])
def test_who_names_some_columns_is_told_which_are_left(tmp_path: Path, form: str | None) -> None:
    path = tmp_path / "pods.csv"
    path.write_text("pod,created,count\na,0,1\n")
    named = (("arrival_s", "created"), ("gpus", "count"))
    with pytest.raises(TraceUnreadable) as error:
        list(forms.read(TraceFile(path, columns=named), form))
    told = "with --columns it still lacks duration_s, job; name them too (# is the number of the line)"
    assert told in str(error.value)


@pytest.mark.parametrize("ending", ["gz", "xz", "zst"])
def test_a_file_that_is_not_packed_as_its_name_says_is_told(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"trace.{ending}"
    path.write_text(OWN_JOBS)
    with pytest.raises(TraceUnreadable) as error:
        list(forms.read(TraceFile(path)))
    assert f"cannot be unpacked as its ending .{ending} says" in str(error.value)
    with pytest.raises(TraceUnreadable, match="is a directory: name the files in it"):
        list(forms.read(TraceFile(tmp_path)))
