"""Replicas of sharded models, under churn. Replicas are pairs of processes with a gloo group of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pccl
import pccl.torch
import torch.distributed as dist
from pccl import Attribute
from torch_peers import Channel, Peer, start  # noqa: F401

Start = Callable[..., Peer]
Replica = list[Peer]
SHARDS = 2


@pytest.fixture
def replica(start: Start, master: str) -> Iterator[Callable[..., Replica]]:  # noqa: F811
    """replica(function, ...): two processes that call function(channel, grid, ...)."""
    stores = []

    def make(function: Callable[..., Any], *arguments: Any, **made_with: Any) -> Replica:
        stores.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        return [
            start(in_replica, master, stores[-1].port, shard, made_with, function, *arguments)
            for shard in range(SHARDS)
        ]

    yield make


def in_replica(
    channel: Channel,
    master: str,
    port: int,
    shard: int,
    made_with: dict[str, Any],
    function: Callable[..., Any],
    *arguments: Any,
) -> Any:
    """``made_with``: the backend, and options of the grid."""
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the store is served by the test
    backend = made_with.pop("backend", "gloo")
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=shard, world_size=SHARDS)
    group = dist.distributed_c10d._get_default_group()
    with pccl.torch.ReplicaGrid(master, group, **made_with) as grid:
        assert (grid.shard, grid.shards) == (shard, SHARDS)
        result = function(channel, grid, *arguments)
    dist.destroy_process_group()
    return result


class Counter:
    """A model to which every step adds the average of what the replicas bring."""

    def __init__(self) -> None:
        self.content = torch.zeros(1000)
        self.step = torch.zeros((), dtype=torch.int64)
        self.state = pccl.SharedState(
            [pccl.TensorInfo.from_torch(self.content, "content"), pccl.TensorInfo.from_torch(self.step, "step")]
        )

    def apply(self, update: Any) -> None:
        self.content += update
        self.step += 1


def wait_for_two(channel: Channel, grid: Any, own: float) -> list[float]:
    """Trains alone until there is a second replica, then makes three steps with it."""
    counter, together, told = Counter(), 0, False
    while together < 3:
        grid.begin(counter.state)
        together += grid.replicas == 2
        update = torch.full((1000,), own * (grid.shard + 1))
        assert grid.average_([update])
        if together:
            counter.apply(update)
        elif not told:
            channel.send("alone")
            told = True
    return [counter.content[0].item(), float(counter.step)]


def test_a_replica_joins_one_that_trains(replica: Callable[..., Replica]) -> None:
    first = replica(wait_for_two, 1.0)
    for peer in first:
        assert peer.hear() == "alone"
    second = replica(wait_for_two, 3.0)
    for shard in range(SHARDS):
        for one in (first, second):
            assert one[shard].result() == [3 * 2.0 * (shard + 1), 3.0]


def begin_in_turn(channel: Channel, grid: Any) -> int:
    channel.send("ready")
    channel.recv()
    channel.send("begins")
    grid.begin(Counter().state)
    return int(grid.replicas)


def test_a_replica_comes_in_as_a_whole(replica: Callable[..., Replica], master: str) -> None:
    with pccl.Communicator(master, peer_group=0) as other:
        other.connect()
        first, second = replica(begin_in_turn)
        for peer in (first, second):
            assert peer.hear() == "ready"
        second.tell("go")
        assert second.hear() == "begins"
        for _ in range(300):  # it must wait, however often it could be admitted
            other.update_topology()
        assert other.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 1
        first.tell("go")
        while other.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 1:
            other.update_topology()
        assert other.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 3
    assert [peer.result() for peer in (first, second)] == [1, 1]


def begin_alone(channel: Channel, grid: Any) -> str:
    if grid.shard == 1:
        return str(channel.recv())
    with pytest.raises(pccl.PCCLMasterConnectionError) as failure:
        grid.begin(Counter().state)
    return str(failure.value)


def test_a_process_waits_for_its_mates_for_a_limited_time(replica: Callable[..., Replica]) -> None:
    first, second = replica(begin_alone, mates_timeout_s=1.0)
    assert "nobody has taken its place 1" in first.result()
    second.tell("ends")
    assert second.result() == "ends"


def begin_until_two(channel: Channel, grid: Any, held: bool) -> list[int]:
    counter, seen = Counter(), []
    channel.send("ready")
    if held and grid.shard == 1:
        channel.recv()
    while 2 not in seen:
        grid.begin(counter.state)
        seen.append(int(grid.replicas))
        if len(seen) == 1:
            channel.send("begun")
    return seen


def test_nobody_computes_while_a_replica_is_half_there(replica: Callable[..., Replica]) -> None:
    first = replica(begin_until_two, False)
    second = replica(begin_until_two, True)
    for peer in first + second:
        assert peer.hear() == "ready"
    for peer in first:
        assert peer.hear() == "begun"  # so that the second replica is not the first one in the run
    second[1].tell("go")
    seen = [peer.result() for peer in first]
    # Otherwise the first shard would have seen two replicas when the second saw one.
    assert seen[0] == seen[1] and seen[0][-1] == 2
    assert [peer.result() for peer in second] == [[2], [2]]


def train_until_told(channel: Channel, grid: Any, own: float) -> tuple[float, int]:
    """Reports when two replicas have trained together, then trains until it was alone for three steps."""
    counter, alone, together = Counter(), 0, 0
    while alone < 3:
        grid.begin(counter.state)
        update = torch.full((1000,), own)
        if grid.average_([update]):
            counter.apply(update)
        if together >= 3:
            alone += grid.replicas == 1
        elif grid.replicas == 2:
            together += 1
            if together == 3:
                channel.send("together")
    return counter.content[0].item(), int(counter.step)


def test_the_other_replicas_go_on_when_one_dies(replica: Callable[..., Replica]) -> None:
    stay, die = replica(train_until_told, 1.0), replica(train_until_told, 3.0)
    for peer in stay + die:
        assert peer.hear() == "together"
    for peer in die:
        peer.kill()
    (content, steps), (other, other_steps) = (peer.result() for peer in stay)
    # The dead replica may be in the last average of one shard and not in that of the other: 2 with it, 1 without.
    assert steps == other_steps and abs(content - other) <= 1


def lose_a_mate(channel: Channel, grid: Any) -> str:
    counter, together = Counter(), 0
    with pytest.raises(dist.DistBackendError) as failure:
        while True:
            grid.begin(counter.state)
            update = torch.ones(1000)
            if grid.average_([update]):
                counter.apply(update)
            together += grid.replicas == 2
            # One more than the survivors count, because the last one may fail for them.
            if together == 4:
                channel.send("trained")
                together += 1
    with pytest.raises(pccl.PCCLUsageError):
        grid.communicator.update_topology()  # it has left the run
    return str(failure.value)


def test_a_replica_that_lost_a_process_leaves(replica: Callable[..., Replica]) -> None:
    stay, broken = replica(train_until_told, 1.0), replica(lose_a_mate)
    for peer in broken:
        assert peer.hear() == "trained"
    broken[1].kill()
    text = broken[0].result()
    assert "another process of this replica is gone" in text and "start the replica again" in text
    assert stay[0].result() == stay[1].result()


def wait_for_a_word(channel: Channel, grid: Any) -> None:
    """Trains until two replicas have met, waits for a word, and trains on until it is alone."""
    counter = Counter()
    grid.begin(counter.state)
    while grid.replicas != 2:
        grid.begin(counter.state)
    channel.send("met")
    channel.recv()
    while grid.replicas != 1:
        grid.begin(counter.state)


def vote(channel: Channel, grid: Any) -> str:
    counter = Counter()
    grid.begin(counter.state)
    while grid.replicas != 2:
        grid.begin(counter.state)
    update_topology = grid.communicator.update_topology

    def tell_and_vote() -> None:
        channel.send("votes")
        update_topology()

    grid.communicator.update_topology = tell_and_vote
    with pytest.raises(dist.DistBackendError) as failure:
        grid.begin(counter.state)
    return str(failure.value)


def test_a_replica_that_lost_a_process_in_a_vote_leaves(replica: Callable[..., Replica]) -> None:
    stay, broken = replica(wait_for_a_word), replica(vote)
    for peer in stay:
        assert peer.hear() == "met"
    for peer in broken:
        assert peer.hear() == "votes"
    broken[1].kill()
    for peer in stay:
        peer.tell("go")
    assert "another process of this replica is gone" in broken[0].result()
    for peer in stay:
        peer.result()


# ---- a death while another replica joins


def stay_until_somebody_waits(channel: Channel, grid: Any) -> Counter:
    """Stops two replicas between an average and the next begin, while a third one waits to be admitted."""
    counter = Counter()
    while True:
        grid.begin(counter.state)
        assert grid.average_([torch.zeros(1000)])
        if grid.replicas == 2:
            break
    channel.send("met")
    channel.recv()
    while not grid.communicator.are_peers_pending():
        pass
    channel.send("waited for")
    channel.recv()
    return counter


def go_on_beside(channel: Channel, grid: Any, replicas: int) -> int:
    """Makes three steps with that many replicas. A healthy replica never gets an error."""
    counter = stay_until_somebody_waits(channel, grid)
    taken = 0
    while taken < 3:
        grid.begin(counter.state)
        update = torch.ones(1000)
        if grid.average_([update]) and grid.replicas == replicas:
            counter.apply(update)
            taken += 1
    return taken


def lose_the_first(channel: Channel, grid: Any, votes: bool) -> str:
    counter = stay_until_somebody_waits(channel, grid)
    update_topology = grid.communicator.update_topology

    def tell_and_vote() -> None:
        channel.send("votes")
        if grid.shard == 0:
            channel.recv()  # until it dies
        update_topology()

    if votes:
        grid.communicator.update_topology = tell_and_vote
    with pytest.raises(dist.DistBackendError) as failure:
        grid.begin(counter.state)
        grid.average_([torch.ones(1000)])
    return str(failure.value)


def come(channel: Channel, grid: Any, replicas: int) -> int:
    channel.send("comes")
    counter, taken = Counter(), 0
    while taken < 3:
        grid.begin(counter.state)
        update = torch.ones(1000)
        if grid.average_([update]) and grid.replicas == replicas:
            counter.apply(update)
            taken += 1
    return taken


def tell(peers: Replica, words: str = "go") -> None:
    for peer in peers:
        peer.tell(words)


def hear(peers: Replica, words: str) -> None:
    for peer in peers:
        assert peer.hear() == words


def test_a_death_before_the_vote_while_a_replica_waits(replica: Callable[..., Replica]) -> None:
    """Neither the rest of the replica that lost a process nor the newcomer makes the others wait."""
    stay, broken = replica(go_on_beside, 2), replica(lose_the_first, False)
    hear(stay + broken, "met")
    newcomer = replica(come, 2)
    hear(newcomer, "comes")
    tell(stay + broken)
    hear(stay + broken, "waited for")
    broken[0].kill()
    tell(stay + broken[1:])
    assert "another process of this replica is gone" in broken[1].result()
    assert [peer.result() for peer in stay + newcomer] == [3, 3, 3, 3]


def test_a_death_in_the_vote_while_a_replica_waits(replica: Callable[..., Replica]) -> None:
    stay, broken = replica(go_on_beside, 2), replica(lose_the_first, True)
    hear(stay + broken, "met")
    newcomer = replica(come, 2)
    hear(newcomer, "comes")
    tell(stay + broken)
    hear(stay + broken, "waited for")
    tell(stay + broken)
    hear(broken, "votes")
    broken[0].kill()
    assert "another process of this replica is gone" in broken[1].result()
    assert [peer.result() for peer in stay + newcomer] == [3, 3, 3, 3]


def thrown_out_in_the_middle(channel: Channel, grid: Any, own: float, breaks: bool) -> list[Any]:
    """Turns and steps count from when the replicas have met. None ends before they have met again, so a replica that
    was removed comes back to one that waits for it."""
    counter, taken, turn = Counter(), [], 0
    while True:
        grid.begin(counter.state)
        both = grid.replicas == 2
        if both and counter.step >= 8:
            break
        turn += turn > 0 or both
        update = torch.full((1000,), own * (grid.shard + 1))
        if breaks and turn == 4 and grid.shard == 1:
            grid.communicator.abort()
        # Both processes of a replica get the same result.
        took = grid.average_([update])
        taken.append(took)
        if took and turn > 0:
            counter.apply(update)
    return [taken, counter.content[0].item(), int(counter.step)]


def test_no_process_of_a_replica_steps_when_one_was_thrown_out(replica: Callable[..., Replica]) -> None:
    stay, breaks = replica(thrown_out_in_the_middle, 1.0, False), replica(thrown_out_in_the_middle, 1.0, True)
    kept, back = [peer.result() for peer in stay], [peer.result() for peer in breaks]
    assert kept[0][0] == kept[1][0] and all(kept[0][0])
    assert back[0][0] == back[1][0] and back[0][0].count(False) == 1
    for shard in range(SHARDS):
        # It took over the content of those that stayed, so no replica is a step ahead with one shard.
        assert back[shard][1:] == kept[shard][1:]
        assert kept[shard][1] == kept[shard][2] * (shard + 1)


def test_a_mesh_whose_backend_has_no_cpu(replica: Callable[..., Replica]) -> None:
    """As with NCCL, the messages within the replica need a group of their own."""
    first, second = replica(wait_for_two, 1.0, backend="cuda:gloo"), replica(wait_for_two, 3.0, backend="cuda:gloo")
    for shard in range(SHARDS):
        for one in (first, second):
            assert one[shard].result()[1] == 3.0


def wrong_inputs(_: Channel, grid: Any) -> None:
    with pytest.raises(ValueError, match=r"begin\(\) comes before"):
        grid.average_([torch.ones(2)])
    grid.begin(Counter().state)
    assert grid.average_([])
    with pytest.raises(ValueError, match="quantize is 'int4'"):
        grid.average_([torch.ones(2)], quantize="int4")
    with pytest.raises(ValueError, match="int8.*tensor 0 is torch.int32"):
        grid.average_([torch.ones(2, dtype=torch.int32)], quantize="int8")
    with pytest.raises(ValueError, match="not contiguous"):
        grid.average_([torch.ones(2, 3).t()])
    assert grid.average_([torch.ones(2)])


def test_wrong_inputs_say_what_to_do(replica: Callable[..., Replica]) -> None:
    for peer in replica(wrong_inputs):
        peer.result()


def differ(_: Channel, grid: Any, size: int) -> str:
    with pytest.raises((pccl.PCCLError, RuntimeError)) as failure:
        counter = Counter()
        grid.begin(counter.state)
        while grid.replicas < 2:
            grid.begin(counter.state)
        # Only for one shard do the two replicas have different sizes.
        grid.average_([torch.ones(size if grid.shard == 0 else 3)])
    return str(failure.value)


def test_replicas_that_differ_fail_on_all_shards(replica: Callable[..., Replica]) -> None:
    replicas = [replica(differ, 10), replica(differ, 11)]
    for peers in replicas:
        assert "INVALID_ARGUMENT" in peers[0].result()
        assert "another process of this replica could not average" in peers[1].result()


def hold(channel: Channel, grid: Any) -> None:
    counter = Counter()
    counter.apply(7.0)
    grid.begin(counter.state)
    channel.send("holds")
    while True:
        grid.begin(counter.state)


def receive_one_after_the_other(channel: Channel, grid: Any) -> list[float]:
    """Shard 1 synchronizes when it is told."""
    counter, synchronize, calls = Counter(), grid.communicator.sync_shared_state, []

    def later(state: Any) -> Any:
        calls.append(state)
        if len(calls) == 1 and grid.shard == 1:
            channel.send("waits")
            channel.recv()
        info = synchronize(state)
        if len(calls) == 1 and grid.shard == 0:
            channel.send("has received" if counter.step else "has received nothing")
        return info

    grid.communicator.sync_shared_state = later
    grid.begin(counter.state)
    return [grid.replicas, counter.content[0].item(), float(counter.step), counter.state.revision]


def test_a_replica_that_receives_one_shard_of_two_begins_with_its_own(replica: Callable[..., Replica]) -> None:
    """The only holder dies when it has sent one shard."""
    holder = replica(hold)
    hear(holder, "holds")
    newcomer = replica(receive_one_after_the_other)
    assert newcomer[1].hear() == "waits" and newcomer[0].hear() == "has received"
    for peer in holder:
        peer.kill()
    newcomer[1].tell("go")
    assert [peer.result() for peer in newcomer] == [[1, 0.0, 0.0, 1]] * SHARDS


def other_revisions(_: Channel, grid: Any) -> str:
    counter = Counter()
    counter.state.revision = 5 + grid.shard
    with pytest.raises(RuntimeError) as failure:
        grid.begin(counter.state)
    assert counter.state.revision == 5 + grid.shard
    return str(failure.value)


def test_shards_of_different_revisions_are_refused(replica: Callable[..., Replica]) -> None:
    for peer in replica(other_revisions):
        assert "hold states of different revisions" in peer.result()
