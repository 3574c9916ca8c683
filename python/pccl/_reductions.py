"""Reductions over the group: all_reduce, launched ones, and many at once."""

from __future__ import annotations

from functools import partial

from pccl import _staging
from pccl._collectives import Array
from pccl._enums import DistributionHint, QuantizationAlgorithm, ReduceOp
from pccl._errors import argument_error
from pccl._limits import Timeout, limit
from pccl._memory import Memory
from pccl._messages import MessageCollectives
from pccl._operation import AsyncReduceHandle
from pccl._staging import is_on_gpu
from pccl._values import (
    QuantizationOptions,
    ReduceInfo,
    ReduceOpDescriptor,
    ReduceOperandDescriptor,
    Reduction,
    check_operand,
    reduce_memory,
    reduction_of,
)


class Reductions(MessageCollectives):
    """Part of :class:`Communicator`."""

    def all_reduce(
        self,
        send: Array,
        recv: Array,
        *,
        op: ReduceOp,
        tag: int = 0,
        operand_descriptor: ReduceOperandDescriptor | None = None,
        quantization_options: QuantizationOptions | None = None,
        timeout: Timeout = None,
    ) -> ReduceInfo:
        """Reduces an array over the group, by a ring all-reduce as in arXiv 2505.14065. Blocks until the outcome is
        known. It succeeds for all remaining members or fails for all of them, and all get the same bytes. All members
        of the group pass the same number of elements, type, ``op``, ``tag`` and quantization.

        :param send: a contiguous torch tensor or numpy array, of any shape and of a type of :class:`DataType`. On the
            CPU it is not copied. It is not changed unless it is also ``recv``. A torch tensor may be on a CUDA device:
            it is copied to the CPU, after what the calling thread's current stream holds.
        :param recv: the result: ``send`` itself, or an array of the same kind, device, type and number of elements that
            does not overlap it. It may be a parameter or require grad; autograd does not record the reduction. After a
            failure it holds its input again if it is ``send``; otherwise it is undefined. On a CUDA device, every
            stream may read the result when this returns.
        :param op: the operation. AVG divides by the number of members that took part. Integers wrap around, and their
            AVG truncates; float16 and bfloat16 are added in float32.
        :param tag: 0 to 2**64 - 1; reductions that run at the same time have different tags.
        :param operand_descriptor: optional. Its type must be that of the arrays; quantization uses its hint.
        :param quantization_options: how to send float32 or float64 as small integers, with a rounding error at each hop
            of at most half a step (see :class:`QuantizationOptions`). None: the elements are sent unchanged.
        :param timeout: as for the class.
        :returns: number of members that took part, bytes sent and received.
        :raises PCCLConnectionLostError: a member was lost, and the reduction failed for all. Call again or skip it, the
            same way on all members.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLTimeoutError: not done in time; this peer has left the run.
        :raises PCCLArgumentError: an array cannot be used in place, or the members disagree.
        """
        source, target = reduce_memory(send, recv, "Communicator.all_reduce")
        reduction = _reduction(
            source, op, tag, operand_descriptor, quantization_options, "Communicator.all_reduce"
        )
        comm = self._live()
        if not is_on_gpu(source.device_type):
            with limit(timeout, "Communicator.all_reduce"):
                return ReduceInfo(*comm.all_reduce(source.pointer, target.pointer, reduction))
        host = _staging.Fetch(send).wait()
        result = _staging.room_for_result(host)
        with limit(timeout, "Communicator.all_reduce"):
            info = ReduceInfo(*comm.all_reduce(host.data_ptr(), result.data_ptr(), reduction))
        _staging.store(result, recv)
        return info

    def all_reduce_async(
        self,
        send: Array,
        recv: Array,
        *,
        op: ReduceOp,
        tag: int = 0,
        operand_descriptor: ReduceOperandDescriptor | None = None,
        quantization_options: QuantizationOptions | None = None,
    ) -> AsyncReduceHandle:
        """Launches a reduction and returns at once. Both arrays belong to the reduction until its handle is done: do
        not read or write them before that. The communicator keeps them alive. If they are on a CUDA device, the launch
        blocks until ``send`` has been computed there and copied to the CPU; the result is copied back in a thread of
        this package.

        :param send: as for :meth:`all_reduce`.
        :param recv: as for :meth:`all_reduce`.
        :param op: as for :meth:`all_reduce`.
        :param tag: as for :meth:`all_reduce`. No other launched reduction of this communicator may have it. It is free
            again after this reduction was awaited through its handle.
        :param operand_descriptor: as for :meth:`all_reduce`.
        :param quantization_options: as for :meth:`all_reduce`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place, or the tag is launched already.
        """
        source, target = reduce_memory(send, recv, "Communicator.all_reduce_async")
        reduction = _reduction(
            source, op, tag, operand_descriptor, quantization_options, "Communicator.all_reduce_async"
        )
        comm = self._live()
        owners, pointers, land = source.owners + target.owners, (source.pointer, target.pointer), None
        if is_on_gpu(source.device_type):
            host = _staging.Fetch(send).wait()
            result = _staging.room_for_result(host)
            owners, land = (host, result), partial(_staging.store, result, recv)
            pointers = host.data_ptr(), result.data_ptr()
        launched = self._start(owners, lambda operation: comm.all_reduce_async(operation, *pointers, reduction))
        return AsyncReduceHandle(*launched, land)

    def all_reduce_multiple_with_retry(
        self, descriptors: list[ReduceOpDescriptor], *, max_in_flight: int = 4, timeout: Timeout = None
    ) -> ReduceInfo:
        """Reduces many arrays, each under its own tag. Blocks until all are reduced. If a reduction fails because a
        peer was lost, the call retries it with the remaining members. All members of the group pass the same tags, in
        any order.

        :param descriptors: one for each array, with different tags. Their memory is used until the call returns.
        :param max_in_flight: how many reductions run at a time, 1 or more; members may use different numbers.
        :param timeout: as for the class.
        :returns: number of members that took part in the reduction that ended last, and bytes of all attempts.
        :raises PCCLTooFewPeersError: the other members are gone. An array that is reduced in place then holds either
            its result or its input, and it is not known which: keep a copy of inputs that are needed again. Arrays on
            a CUDA device hold their inputs.
        :raises PCCLArgumentError: no descriptors, a tag twice, or members that disagree.
        """
        function = "Communicator.all_reduce_multiple_with_retry"
        if not descriptors:
            raise argument_error(function, "descriptors is empty: there is nothing to reduce")
        if not 1 <= max_in_flight < 1 << 31:
            raise argument_error(function, f"max_in_flight is {max_in_flight}; use 1 or more, 8 for example")
        comm = self._live()
        fetched = {}
        for one in descriptors:
            if one._on_gpu is not None:
                send, recv = (tensor.detach().view(-1)[: one.reduce_descriptor.count] for tensor in one._on_gpu)
                fetched[id(one)] = _staging.Fetch(send), recv
        reductions = []
        for one in descriptors:
            pointers = one.sendbuf_ptr, one.recvbuf_ptr
            if id(one) in fetched:
                pointers = (fetched[id(one)][0].wait().data_ptr(),) * 2
            reductions.append((*pointers, reduction_of(one.reduce_descriptor)))
        with limit(timeout, function):
            info = ReduceInfo(*comm.all_reduce_multiple_with_retry(reductions, max_in_flight))
        for fetch, recv in fetched.values():
            _staging.store(fetch.host, recv)
        return info


def _reduction(
    memory: Memory,
    op: ReduceOp,
    tag: int,
    operand: ReduceOperandDescriptor | None,
    quantization: QuantizationOptions | None,
    function: str,
) -> Reduction:
    if not isinstance(op, int):
        raise argument_error(function, f"op is {op!r}; use a pccl.ReduceOp")
    hint = DistributionHint.NONE
    if operand is not None:
        check_operand(operand, memory, function)
        hint = operand.distribution_hint
    if not 0 <= tag < 1 << 64:
        raise argument_error(function, f"tag is {tag}; use a number from 0 to 2**64 - 1")
    if quantization is None:
        return memory.elements, op, tag, memory.data_type, hint, memory.data_type, QuantizationAlgorithm.NONE
    return (
        memory.elements,
        op,
        tag,
        memory.data_type,
        hint,
        quantization.quantized_datatype,
        quantization.algorithm,
    )
