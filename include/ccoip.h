/*
 * ccoip.h: the port numbers that PCCL programs know by name.
 *
 * Only the master's port is still used as a fixed port. A peer listens on one port for all its roles, the first free
 * one of the range in the environment variable PCCL_PORT_RANGE. The other macros are kept for programs that name them.
 */
#ifndef CCOIP_H
#define CCOIP_H

#define CCOIP_PROTOCOL_PORT_MASTER 48148
#define CCOIP_PROTOCOL_PORT_SHARED_STATE 48149
#define CCOIP_PROTOCOL_PORT_P2P 48150
#define CCOIP_PROTOCOL_PORT_BANDWIDTH_BENCHMARK 48151

#endif /* CCOIP_H */
