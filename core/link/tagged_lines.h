// Control messages with tags (tags.h), over another link that carries them. Before each line stands the tag of the line
// and of its number, as hex digits. So a line that was changed, left out, repeated or moved ends the link. Nothing here
// does I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "link/control_link.h"
#include "link/tags.h"

namespace netfold::link {

class TaggedLines final : public ControlLink {
 public:
  TaggedLines(std::unique_ptr<ControlLink> link, std::unique_ptr<Tags> tags)
      : link_(std::move(link)), tags_(std::move(tags)) {}

  // kGarbage after a line with a wrong tag; neither that line nor a later one is told.
  Outcome read(const std::function<void(std::string_view)>& on_line) override;
  Outcome write(std::string_view lines) override;  // whole lines
  Outcome flush() override { return link_->flush(); }
  bool wants_to_write() const override { return link_->wants_to_write(); }
  bool has_unconfirmed() const override { return link_->has_unconfirmed(); }
  Nanoseconds usual_confirmation() const override { return link_->usual_confirmation(); }
  void shut_down_writing() override { link_->shut_down_writing(); }
  int descriptor() const override { return link_->descriptor(); }

 private:
  std::unique_ptr<ControlLink> link_;
  std::unique_ptr<Tags> tags_;
  std::uint64_t written_ = 0, read_ = 0;  // lines
  bool is_wrong_ = false;                 // a line that came
};

}  // namespace netfold::link
