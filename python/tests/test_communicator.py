"""The life of a communicator and its membership."""

from __future__ import annotations

import gc
import os
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pccl
import pytest
from conftest import PATIENCE_S, Script, admit, run_threads, wait_until
from pccl import Attribute, ReduceOp

RunPeers = Callable[..., list[Any]]


def test_first_peer_is_alone(master: str) -> None:
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        assert [communicator.get_attribute(attribute) for attribute in Attribute] == [1, 1, 1, 1, 0]
        assert communicator.are_peers_pending() is False
        communicator.update_topology()
        assert communicator.stats()["membership"]
        with pytest.raises(pccl.PCCLUsageError, match="connected"):
            communicator.connect()


def test_not_connected() -> None:
    with pccl.Communicator("127.0.0.1:1") as communicator:
        for call in (communicator.update_topology, communicator.are_peers_pending, communicator.optimize_topology):
            with pytest.raises(pccl.PCCLUsageError, match="connect"):
                call()
        with pytest.raises(pccl.PCCLUsageError, match="connect"):
            communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE)
        with pytest.raises(pccl.PCCLError) as raised:
            communicator.all_reduce(numpy.ones(1), numpy.ones(1), op=ReduceOp.SUM)
        assert raised.value.result is pccl.Result.INVALID_USAGE


def test_no_master() -> None:
    with socket.socket() as unused:  # bound but not listening, so nothing answers here
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pccl.Communicator(address) as communicator:
            with pytest.raises(pccl.PCCLError, match="Failed to connect to the master node") as raised:
                communicator.connect(n_attempts=2)
            assert raised.value.result is pccl.Result.MASTER_CONNECTION_FAILED
            assert address in str(raised.value) and "2 attempts" in str(raised.value)


def test_a_master_that_is_not_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        def answer() -> None:
            other, _ = server.accept()
            with other:
                other.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)
                while other.recv(4096):
                    pass

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pccl.Communicator(f"127.0.0.1:{server.getsockname()[1]}") as communicator:
            with pytest.raises(pccl.PCCLMasterConnectionError, match="Failed to connect to the master node"):
                communicator.connect(n_attempts=1)
        thread.join(PATIENCE_S)


def test_connect_waits_for_a_master_that_comes_later(port: int) -> None:
    with pccl.Communicator(f"127.0.0.1:{port}") as communicator, pccl.MasterNode(f"127.0.0.1:{port}") as node:
        with socket.create_server(("127.0.0.1", port)) as early:
            thread = threading.Thread(target=lambda: communicator.connect(int(PATIENCE_S)), daemon=True)
            thread.start()
            early.accept()[0].close()  # the first attempt has failed
        node.run()
        thread.join(PATIENCE_S)
        assert communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 1


@pytest.mark.parametrize("addresses", [("127.0.0.2", "127.0.0.1"), ("127.0.0.1", "127.0.0.2")])
def test_a_name_of_several_addresses(addresses: tuple[str, str], master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, port: int, **_: object) -> list[Any]:
        assert host == "host.invalid"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pccl.Communicator("host.invalid:" + master.split(":")[1]) as communicator:
        communicator.connect(n_attempts=1)
        assert communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 1


def test_a_name_joins_again_with_the_same_communicator(master: str) -> None:
    with pccl.Communicator("localhost:" + master.split(":")[1]) as communicator:
        communicator.connect()
        peer = communicator.peer_id
        with pytest.raises(pccl.PCCLUsageError, match="connected already"):
            communicator.connect()
        assert communicator.peer_id == peer
        communicator.abort()
        communicator.connect()
        assert communicator.stats()["membership"]["connects"] == 2


def test_a_member_whose_connect_a_handler_ended(master: str) -> None:
    class Interrupted:
        """Stands before the native communicator: a handler raises when connect() has just succeeded."""

        def __init__(self, comm: Any) -> None:
            self._comm = comm

        def connect(self) -> None:
            self._comm.connect()
            error = KeyboardInterrupt()
            error.pccl_succeeded = True  # type: ignore[attr-defined]
            raise error

        def __getattr__(self, name: str) -> Any:
            return getattr(self._comm, name)

    with pccl.Communicator(master) as communicator:
        communicator._comm = Interrupted(communicator._comm)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            communicator.connect()
        assert communicator.state is pccl.CommunicatorState.MEMBER


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_abort_before_the_first_connect(host: str, master: str) -> None:
    with pccl.Communicator(f"{host}:" + master.split(":")[1]) as communicator:
        communicator.abort()  # does nothing
        communicator.connect()
    with pytest.raises(pccl.PCCLUsageError, match="closed"):
        communicator.abort()


def test_a_member_that_connects_again_keeps_its_members(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, _: int) -> None:
        communicator.barrier()
        members, index = communicator.members, communicator.index
        for attempts in (0, 1):
            with pytest.raises(pccl.PCCLError):
                communicator.connect(n_attempts=attempts)
        assert communicator.members == members and communicator.index == index
        communicator.barrier()

    run_peers(2, body)


def test_another_address_of_a_name_keeps_the_order_of_pieces(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = ["127.0.0.1"]

    def look_up(host: str, port: int, **_: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pccl.Communicator("host.invalid:" + master.split(":")[1]) as communicator:
        communicator.connect(n_attempts=1)
        communicator.set_piece_order([1, 0])
        communicator.abort()
        made: list[Any] = []
        create = communicator._create

        class Noting:
            def __init__(self, comm: Any) -> None:
                self._comm, self.order = comm, None

            def set_piece_order(self, order: Any) -> None:
                self.order = order
                self._comm.set_piece_order(order)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._comm, name)

        def note(packed: bytes, port: int) -> Any:
            made.append(Noting(create(packed, port)))
            return made[-1]

        monkeypatch.setattr(communicator, "_create", note)
        addresses.insert(0, "127.0.0.2")
        communicator.connect(n_attempts=1)
        assert [one.order for one in made] == [(1, 0), (1, 0)]


def test_closed_during_the_lookup_of_a_name(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    communicator = pccl.Communicator("host.invalid:" + master.split(":")[1])

    def look_up(host: str, port: int, **_: object) -> list[Any]:
        communicator.close()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(pccl.PCCLUsageError, match="closed"):
        communicator.connect()
    with pccl.Communicator(master) as other:
        other.connect()  # is the first peer of the run
        assert other.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 1


def test_a_time_limit_counts_the_lookup_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = threading.Event()
    in_time: list[bool] = []

    def look_up(host: str, port: int, **_: object) -> list[Any]:
        in_time.append(returned.wait(PATIENCE_S))
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr("pccl._address._LOOKUP_S", 2 * PATIENCE_S)
    with pccl.Communicator("host.invalid:48148") as communicator:
        with pytest.raises(pccl.PCCLTimeoutError):
            communicator.connect(timeout=0.01)
        returned.set()
        wait_until(lambda: in_time == [True], "connect() returned before the lookup")


def test_names_and_other_forms_of_addresses(master: str) -> None:
    port = master.split(":")[1]
    with pccl.Communicator(f"localhost:{port}") as communicator:
        communicator.connect()
        assert communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 1
    with pccl.Communicator("no-such-host.invalid:48148") as communicator:
        with pytest.raises(pccl.PCCLMasterConnectionError, match="no-such-host.invalid.*looked up"):
            communicator.connect(n_attempts=1)
        with pytest.raises(pccl.PCCLUsageError, match="never connected"):
            communicator.update_topology()


def test_version_six() -> None:
    try:
        with pccl.MasterNode("[::1]:0") as node:
            node.run()
            with pccl.Communicator(f"[::1]:{node.port}") as communicator:
                communicator.connect()
                assert communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 1
    except pccl.PCCLUsageError:
        pytest.skip("this machine has no IPv6")


def test_closed(master: str) -> None:
    communicator = pccl.Communicator(master)
    communicator.connect()
    communicator.close()
    communicator.close()
    with pytest.raises(pccl.PCCLUsageError, match="closed; make another one"):
        communicator.update_topology()
    assert "closed" in repr(communicator)


def test_closing_ends_a_call_of_another_thread(master: str) -> None:
    first = pccl.Communicator(master)
    first.connect()
    second = pccl.Communicator(master)
    failures: list[BaseException] = []

    def join() -> None:
        try:
            second.connect(n_attempts=1)  # waits, because the first one does not admit it
        except pccl.PCCLError as error:
            failures.append(error)

    thread = threading.Thread(target=join, daemon=True)
    thread.start()
    while not first.are_peers_pending():
        pass
    second.close()
    thread.join(PATIENCE_S)
    assert isinstance(failures[0], pccl.PCCLMasterConnectionError)
    first.close()


def test_abort_and_join_again(master: str) -> None:
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        communicator.abort()
        assert communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 1
        with pytest.raises(pccl.PCCLTopologyError, match="abort"):
            communicator.update_topology()
        array = numpy.ones(4, numpy.float32)
        with pytest.raises(pccl.PCCLTooFewPeersError, match="no longer a member.*abort.*connect again"):
            communicator.all_reduce(array, array, op=pccl.ReduceOp.SUM)
        with pytest.raises(pccl.PCCLUsageError, match="no longer a member.*abort.*connect again"):
            communicator.sync_shared_state(pccl.SharedState([pccl.TensorInfo.from_numpy(array, "array")]))
        communicator.connect()
        communicator.update_topology()


def test_dropped_communicators_leave(master: str) -> None:
    threads = len(os.listdir("/proc/self/task"))
    communicator = pccl.Communicator(master)
    communicator.connect()
    seen = weakref.ref(communicator)
    del communicator
    gc.collect()
    assert seen() is None
    # After a thread was joined, the system may still list it for a moment.
    wait_until(lambda: len(os.listdir("/proc/self/task")) <= threads, "its threads are gone")


def test_from_env(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PCCL_MASTER_ADDRESS", raising=False)
    with pytest.raises(pccl.PCCLArgumentError, match="set it to the master's host:port"):
        pccl.Communicator.from_env()
    monkeypatch.setenv("PCCL_MASTER_ADDRESS", master)
    monkeypatch.setenv("PCCL_PEER_GROUP", "many")
    with pytest.raises(pccl.PCCLArgumentError, match="PCCL_PEER_GROUP is 'many'"):
        pccl.Communicator.from_env()
    monkeypatch.setenv("PCCL_PEER_GROUP", "3")
    monkeypatch.setenv("PCCL_P2P_CONNECTION_POOL_SIZE", "2")

    def peer(index: int) -> None:
        with pccl.Communicator.from_env(name="from-env") as communicator:
            communicator.connect()
            admit(communicator, 2)
            array = numpy.ones(4)
            communicator.all_reduce(array, array, op=ReduceOp.SUM)
            assert "group 3" in repr(communicator)
            assert [one["connections"] for one in communicator.stats()["neighbours"]] == [2]
            communicator.update_topology()

    run_threads(2, peer)


def test_attributes_while_another_thread_waits(master: str) -> None:
    with pccl.Communicator(master) as first, pccl.Communicator(master) as second:
        first.connect()
        thread = threading.Thread(target=second.connect, daemon=True)
        thread.start()
        admit(first, 2)
        thread.join(PATIENCE_S)
        reduction = threading.Thread(
            target=lambda: first.all_reduce(numpy.ones(4), numpy.ones(4), op=ReduceOp.SUM), daemon=True
        )
        reduction.start()
        # The other member has not called, so the reduction waits. This thread does not.
        assert first.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 2
        second.all_reduce(numpy.ones(4), numpy.ones(4), op=ReduceOp.SUM)
        reduction.join(PATIENCE_S)
        assert not reduction.is_alive()


def test_optimize_topology(master: str) -> None:
    def peer(index: int) -> None:
        with pccl.Communicator(master, num_benchmark_connections=1) as communicator:
            communicator.connect()
            admit(communicator, 3)
            communicator.optimize_topology()
            array = numpy.array([1.0])
            communicator.all_reduce(array, array, op=ReduceOp.SUM)
            assert array[0] == 3
            communicator.update_topology()

    run_threads(3, peer)


def test_a_removed_peer_is_told_why(run_peers: Callable[..., list[Any]]) -> None:
    def body(communicator: pccl.Communicator, index: int) -> str:
        state = pccl.SharedState([pccl.TensorInfo.from_numpy(numpy.zeros(4), "odd" if index == 2 else "common")])
        if index < 2:
            communicator.sync_shared_state(state)
            return ""
        with pytest.raises(pccl.PCCLUsageError) as raised:
            communicator.sync_shared_state(state)
        return str(raised.value)

    assert "key 'common' is missing" in run_peers(3, body)[2]


MASTER = """
import sys, pccl
node = pccl.MasterNode("127.0.0.1:0")
node.run()
print(node.port)
sys.stdin.read()
"""


def test_no_wait_for_a_lost_master(script: Callable[..., Script], monkeypatch: pytest.MonkeyPatch) -> None:
    """0 is a value of its own: the setting of the environment does not replace it."""
    monkeypatch.setenv("PCCL_MASTER_TIMEOUT_MS", "86400000")
    master = script(MASTER)
    with pccl.Communicator(f"127.0.0.1:{master.line()}", master_timeout_ms=0) as communicator:
        communicator.connect()
        master.kill()

        def vote(_: int) -> None:
            with pytest.raises(pccl.PCCLError):
                while True:
                    communicator.update_topology()

        run_threads(1, vote)
        assert communicator.stats()["membership"]["losses"] == 1
