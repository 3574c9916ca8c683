// Small files that must survive a crash whole: written beside their place, synchronised, then renamed. Mode 0600.
#pragma once

#include <string>

namespace pccl::real::tls {

bool file_exists(const std::string& path);
// Makes the folder with mode 0700 if it is not there. Its parent must exist.
bool make_folder(const std::string& path, std::string& error);
// At most 16 MiB.
bool read_file(const std::string& path, std::string& text, std::string& error);
// When it returns true, the disk has the new content; otherwise the old one is unchanged, or the new one is there.
bool write_file(const std::string& path, const std::string& text, std::string& error);

}  // namespace pccl::real::tls
