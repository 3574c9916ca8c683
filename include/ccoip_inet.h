/*
 * ccoip_inet.h: network addresses in the C interface of PCCL.
 *
 * Plain values that own nothing and may be copied. The layouts are frozen, because programs that were compiled with
 * PCCL 1.0 use them. Bytes of an address are in network order, ports in host order. For C99 and C++11, and later.
 */
#ifndef CCOIP_INET_H
#define CCOIP_INET_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Selects the field of ccoip_inet_address_t that holds the address. */
typedef enum ccoip_inet_protocol_t { inetIPv4 = 0, inetIPv6 = 1 } ccoip_inet_protocol_t;

/* Network order: 192.0.2.1 is {192, 0, 2, 1}. */
typedef struct ccoip_ipv4_address_t {
    uint8_t data[4];
} ccoip_ipv4_address_t;

/* Network order: 2001:db8::1 is {0x20, 0x01, 0x0d, 0xb8, 0, ..., 0, 1}. */
typedef struct ccoip_ipv6_address_t {
    uint8_t data[16];
} ccoip_ipv6_address_t;

/* `protocol` selects one of the two addresses; the other one is ignored. */
typedef struct ccoip_inet_address_t {
    ccoip_inet_protocol_t protocol;
    ccoip_ipv4_address_t ipv4;
    ccoip_ipv6_address_t ipv6;
} ccoip_inet_address_t;

typedef struct ccoip_socket_address_t {
    ccoip_inet_address_t inet;
    uint16_t port; /* host order */
} ccoip_socket_address_t;

#ifdef __cplusplus
}
#endif

#endif /* CCOIP_INET_H */
