#include "net-real/host_id.hpp"

#include "core/base/format.hpp"
#include "core/numeric/kernels.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <sys/stat.h>

namespace pccl::real {

std::uint64_t host_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string boot;
    struct stat network {};
    if (!std::getline(file, boot) || boot.empty() || stat("/proc/self/ns/net", &network) != 0) return 0;
    return host_id_of(core::formatted("{} {}:{}", boot, network.st_dev, network.st_ino));
}

std::uint64_t host_id_of(std::string_view name) {
    return std::max<std::uint64_t>(core::numeric::checksum64(name.data(), name.size()), 1);
}

}  // namespace pccl::real
