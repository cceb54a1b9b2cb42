"""Clusters as they are: hosts of several sizes and models from a file, what jobs want, how fast they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from replkernel_scheduler.sim import Cluster, SimulationError, Trace, simulate
from replkernel_scheduler.sim.__main__ import main

NODES = "count,gpus,gpu_model,cpus,memory_gb\n1,2,T4,8,32\n1,4,V100,16,64\n"


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    path = tmp_path / "nodes.csv"
    path.write_text(NODES)
    return path


def played(
    cluster: Cluster | str, rows: list[dict[str, object]], way: str = "easy-batch"
) -> dict[object, tuple[object, object, object]]:
    """Return host, start and end of each job."""
    usual: dict[str, object] = {"arrival_s": 0, "duration_s": 10, "gpus": 1}
    full = [usual | row for row in rows]
    names = {name: "" for row in full for name in row}
    ran = simulate(Trace.of_rows([names | row for row in full]), way, cluster).jobs
    assert set(ran["outcome"]) <= {"done", "refused"}
    return {row["name"]: (row["host"], row["started_s"], row["ended_s"]) for row in ran.rows()}


def test_hosts_of_several_sizes_are_played(nodes: Path) -> None:
    cluster = Cluster.of_file(nodes)
    assert (cluster.hosts, cluster.gpus_per_host) == (2, 4)
    ran = played(cluster, [{"job": "wide", "gpus": 4}, {"job": "two", "gpus": 2}, {"job": "over", "gpus": 5}])
    assert ran["wide"] == ("host-0001", 0.0, 10.0)
    assert ran["two"] == ("host-0000", 0.0, 10.0)
    assert ran["over"] == (None, None, None), "no host has five"
    result = simulate(
        Trace.of_rows([{"job": "a", "arrival_s": 0, "duration_s": 3600, "gpus": 1}]), "srtf", cluster
    )
    assert result.summary["cluster.provisioned_gpu_hours"] == pytest.approx(6.0, rel=0.05)


def test_a_job_runs_on_the_models_that_it_names(nodes: Path) -> None:
    cluster = Cluster.of_file(nodes)
    rows: list[dict[str, object]] = [
        {"job": "v", "gpu_model": "V100", "gpus": 2},
        {"job": "t", "gpu_model": "T4", "gpus": 2},
        {"job": "waits", "gpu_model": "T4", "arrival_s": 1},
        {"job": "either", "gpu_model": "T4|V100", "arrival_s": 2},
        {"job": "none", "gpu_model": "H100", "arrival_s": 3},
        {"job": "neither", "gpu_model": "H100|A100", "arrival_s": 3},
    ]
    ran = played(cluster, rows)
    assert ran["v"] == ("host-0001", 0.0, 10.0)
    assert ran["t"] == ("host-0000", 0.0, 10.0)
    assert ran["waits"] == ("host-0000", 10.0, 20.0)
    assert ran["either"] == ("host-0001", 2.0, 12.0)
    assert ran["none"] == ran["neither"] == (None, None, None)


def test_processors_and_memory_are_counted_where_every_host_says_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("gpus,cpus,memory_gb\n4,8,32\n")
    rows: list[dict[str, object]] = [
        {"job": "a", "cpus": 5, "host_memory_gb": 8},
        {"job": "cpus", "cpus": 4, "arrival_s": 1},
        {"job": "memory", "host_memory_gb": 30, "arrival_s": 2},
        {"job": "fits", "cpus": 3, "host_memory_gb": 2, "arrival_s": 3},
    ]
    ran = played(Cluster.of_file(path), rows, "easy-batch,backfill=none")
    assert ran["cpus"] == ("host-0000", 10.0, 20.0)
    assert ran["memory"] == ("host-0000", 10.0, 20.0)
    path.write_text("gpus\n4\n")
    unknown = played(Cluster.of_file(path), rows)
    assert [times for _, times, _ in unknown.values()] == [0.0, 1.0, 2.0, 3.0]


def test_a_job_takes_as_long_as_its_model_needs(nodes: Path, tmp_path: Path) -> None:
    table = tmp_path / "speeds.csv"
    table.write_text("type,model,speed\n,T4,0.5\nbert,T4,0.25\n")
    rows: list[dict[str, object]] = [
        {"job": "any", "gpu_model": "T4"},
        {"job": "bert", "gpu_model": "T4", "type": "bert"},
        {"job": "fast", "gpu_model": "V100", "type": "bert"},
    ]
    ran = played(Cluster.of_file(nodes, speeds=table), rows)
    assert {name: end for name, (_, _, end) in ran.items()} == {"any": 20.0, "bert": 40.0, "fast": 10.0}
    nodes.write_text("gpus,gpu_model\n1,K80\n")
    gavel = Cluster.of_file(nodes, speeds="gavel")
    gan = played(gavel, [{"job": "gan", "type": "CycleGAN"}])
    assert gan["gan"] == ("host-0000", 0.0, pytest.approx(10 / 0.114))


def test_a_job_on_several_hosts_takes_longer() -> None:
    rows: list[dict[str, object]] = [{"job": "two", "gpus": 4}, {"job": "one", "gpus": 2}]
    cluster = Cluster(2, 2, across_hosts=1.5)
    assert played(cluster, rows, "sq,m=1") == {
        "two": ("host-0000", 0.0, 15.0), "one": ("host-0000", 15.0, 25.0),
    }  # fmt: skip


def test_alibabas_pods_are_played_on_its_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The columns are those of the published files; the rows are made up."""
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,0,nan\nn1,8000,65536,2,T4\nn2,96000,786432,8,V100M32\n"
    )
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time"
    pods.write_text(
        f"{head},scheduled_time\n"
        "p0,4000,8192,1,500,,LS,Succeeded,100,160,110\n"
        "p1,4000,8192,1,500,T4,LS,Succeeded,100,160,110\n"
        "p2,88000,327680,8,1000,V100M16|V100M32,BE,Running,101,1101,101\n"
        "p3,1000,1024,0,0,,LS,Succeeded,100,160,110\n"
        "p4,1000,1024,1,1000,,LS,Pending,100,,\n"
    )
    out = tmp_path / "out"
    asked = [
        str(pods),
        "--policy",
        "easy-batch,placement=bin-pack",
        "--nodes",
        str(nodes),
        "--out",
        str(out),
        "--rows",
        "csv",
    ]
    assert main([*asked, "--quiet"]) == 0
    said = capsys.readouterr()
    assert "3 jobs in" in said.out and "on 2 hosts with 10 GPUs" in said.out
    assert "2 rows have no work" in said.err
    rows = (out / "easy-batch-placement=bin-pack.csv").read_text().splitlines()[1:]
    found = {row.split(",")[1]: (row.split(",")[5], float(row.split(",")[9])) for row in rows}
    assert found == {"p0": ("host-0000", 50.0), "p1": ("host-0000", 50.0), "p2": ("host-0001", 1001.0)}


def test_an_impossible_list_of_hosts_is_refused_in_one_sentence(
    nodes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("job,arrival_s,duration_s,gpus\na,0,5,1\n")
    for words, why in [
        (["--nodes", str(nodes), "--hosts", "2x8"], "leave out --hosts"),
        (["--speeds", "gavel"], "list them with --nodes"),
        (["--nodes", str(nodes), "--speeds", "nowhere.csv"], "no table of speeds nowhere.csv"),
        (["--nodes", str(nodes), "--policy", "sq,m=1"], "its hosts are all equal"),
        (
            ["--nodes", str(nodes), "--speeds", "gavel", "--policy", "srtf"],
            "does not tell models of GPUs apart",
        ),
        (["--nodes", str(nodes), "--policy", "notebook,scaling=buffered"], "hosts that come are all equal"),
        (["--nodes", str(nodes), "--sweep", "hosts=1,2"], "the hosts are those of --nodes"),
    ]:
        assert main([str(trace), *words, "--quiet"]) == 1, words
        assert why in capsys.readouterr().err
    empty = tmp_path / "empty.csv"
    empty.write_text("name,cores\na,4\n")
    with pytest.raises(SimulationError, match="is no list of hosts"):
        Cluster.of_file(empty)
    empty.write_text("gpus\n0\n")
    with pytest.raises(SimulationError, match="has 0 hosts with GPUs"):
        Cluster.of_file(empty)
