/* What a program of a user does first, in plain C99: a master in the process, a peer that joins it and leaves. */
#include <pccl.h>
#include <stdio.h>

static int failed(const char* what, pcclResult_t result) {
    if (result == pcclSuccess) return 0;
    fprintf(stderr, "%s: result %d\n", what, (int)result);
    return 1;
}

int main(void) {
    ccoip_socket_address_t address = {{inetIPv4, {{127, 0, 0, 1}}, {{0}}}, 0};
    pcclMasterInstance_t* master = NULL;
    if (failed("pcclCreateMaster", pcclCreateMaster(address, &master))) return 1;
    if (failed("pcclRunMaster", pcclRunMaster(master))) return 1;
    if (failed("pcclGetMasterPort", pcclGetMasterPort(master, &address.port))) return 1;

    pcclCommCreateParams_t params = {{{inetIPv4, {{0}}, {{0}}}, 0}, 0, 1};
    params.master_address = address;
    pcclComm_t* comm = NULL;
    int world = 0;
    if (failed("pcclInit", pcclInit())) return 1;
    if (failed("pcclCreateCommunicator", pcclCreateCommunicator(&params, &comm))) return 1;
    if (failed("pcclConnect", pcclConnect(comm))) return 1;
    if (failed("pcclGetAttribute", pcclGetAttribute(comm, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &world))) return 1;
    if (failed("pcclDestroyCommunicator", pcclDestroyCommunicator(comm))) return 1;
    if (failed("pcclInterruptMaster", pcclInterruptMaster(master))) return 1;
    if (failed("pcclMasterAwaitTermination", pcclMasterAwaitTermination(master))) return 1;
    if (failed("pcclDestroyMaster", pcclDestroyMaster(master))) return 1;
    printf("joined, world %d\n", world);
    return world == 1 ? 0 : 1;
}
