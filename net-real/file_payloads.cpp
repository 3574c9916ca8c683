#include "net-real/file_payloads.hpp"

#include "core/base/assert.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace pccl::real {

namespace {

bool overlap(const core::BufferRef& a, const core::BufferRef& b) {
    return a.id == b.id && a.offset < b.offset + b.length && b.offset < a.offset + a.length;
}

Block new_block(std::uint64_t bytes) { return Block(new (std::nothrow) std::uint8_t[static_cast<std::size_t>(bytes)]); }

}  // namespace

void write_to_files(const FileWrites& writes) {
    for (const FileWrite& write : writes)
        std::memcpy(write.target, write.data.get(), static_cast<std::size_t>(write.place.length));
}

void read_from_file(FileRead& read) {
    std::memcpy(read.data.get(), read.source, static_cast<std::size_t>(read.command.source.length));
}

std::uint8_t* FilePayloads::begin_landing(core::LinkId link, const core::BufferRef& place) {
    FileWrite write{place, buffers_.resolve(place), new_block(place.length)};
    std::uint8_t* const block = write.data.get();
    if (block != nullptr) landing_.insert_or_assign(link, std::move(write));
    return block;
}

void FilePayloads::end_landing(core::LinkId link, bool good) {
    const auto found = landing_.find(link);
    if (found == landing_.end()) return;
    FileWrite write = std::move(found->second);
    landing_.erase(found);
    if (!good) return;
    // The same range landed again before a worker took the older copy, which is dropped.
    std::erase_if(unwritten_, [&](const FileWrite& older) { return overlap(older.place, write.place); });
    unwritten_.push_back(std::move(write));
}

void FilePayloads::take_writes(const core::BufferRef& range, FileWrites& writes) {
    const auto first = std::stable_partition(unwritten_.begin(), unwritten_.end(),
                                             [&](const FileWrite& write) { return !overlap(write.place, range); });
    std::move(first, unwritten_.end(), std::back_inserter(writes));
    unwritten_.erase(first, unwritten_.end());
}

std::shared_ptr<FileRead> FilePayloads::begin_read(const core::SendPayload& command) {
    ASSERT(std::none_of(unwritten_.begin(), unwritten_.end(),
                        [&](const FileWrite& write) { return overlap(write.place, command.source); }));
    auto read = std::make_shared<FileRead>();
    read->command = command;
    read->file = buffers_.file_of(command.source.id);
    read->source = buffers_.resolve(command.source);
    read->data = new_block(command.source.length);
    if (read->data == nullptr) return nullptr;
    reading_.insert_or_assign(command.link, read);
    return read;
}

FileRead* FilePayloads::reading(core::LinkId link) {
    const auto found = reading_.find(link);
    return found == reading_.end() ? nullptr : found->second.get();
}

void FilePayloads::forget_link(core::LinkId link) {
    landing_.erase(link);
    reading_.erase(link);
}

void FilePayloads::forget_buffer(core::BufferId buffer) {
    std::erase_if(unwritten_, [&](const FileWrite& write) { return write.place.id == buffer; });
}

}  // namespace pccl::real
