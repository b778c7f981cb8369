// The tree of a store below its root, for reading: look-ups and listings, of the writable directory
// and of those below it alike. It creates and locks nothing.
//
// Threads: any member from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entry_file.hpp"
#include "cache/layout.hpp"
#include "cache/root.hpp"
#include "kiln/cache/result.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

class Tree {
 public:
  /// `stamps`: note uses by the times of the files.
  Tree(Root root, bool stamps) : root_(std::move(root)), stamps_(stamps) {}

  const Root& root() const noexcept { return root_; }

  /// Nothing, and no error, where the root is not there.
  Examined look_up(const Place& place, const Digest& name, std::optional<std::string_view> key_text,
                   bool is_use = false) const;

  /// As Store::list().
  Result<std::vector<EntryInfo>> list() const;
  /// In order of kind and name, with `record_kind` set.
  Result<std::vector<EntryInfo>> list_records() const;

  /// Calls `see` for each record of `kind`, read and checked, in order of name.
  void for_each_record(
      std::string_view kind,
      const std::function<void(const Place&, const Digest&, Examined&&)>& see) const;

  /// Why `relative` cannot be read, and the cure.
  Error failed_to_read(const std::string& relative, int error) const;

 private:
  int list_files(int base, const std::string& parent, const std::string& digits,
                 std::vector<EntryInfo>& found) const;

  Root root_;
  mutable std::atomic<bool> stamps_;
};

}  // namespace kiln::cache
