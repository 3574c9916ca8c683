/*
 * ccoip.h: port numbers of PCCL 1.0.
 *
 * Only the first macro is still in use: the default port of pccl-master. A peer listens on a single port: the first
 * free one of the range in the environment variable PCCL_PORT_RANGE. The other macros remain so that old programs
 * compile.
 */
#ifndef CCOIP_H
#define CCOIP_H

#define CCOIP_PROTOCOL_PORT_MASTER 48148
#define CCOIP_PROTOCOL_PORT_SHARED_STATE 48149
#define CCOIP_PROTOCOL_PORT_P2P 48150
#define CCOIP_PROTOCOL_PORT_BANDWIDTH_BENCHMARK 48151

#endif /* CCOIP_H */
