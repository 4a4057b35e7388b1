#include "switch/mac.h"

#include <algorithm>
#include <cstring>

namespace netfold::rtl {

std::optional<Beat> MacReceiver::beat(Ticks now) {
  if (!frame_ && now >= free_ && now >= paused_until_) {
    frame_ = source_ ? source_(now) : std::nullopt;
    if (!frame_) return std::nullopt;
    begins_ = std::max(free_, now - std::min(now, kMacPeriod));  // back to back if it could have begun earlier
    sent_ = 0;
  }
  if (!frame_) return std::nullopt;
  const std::size_t bytes = std::min(kBeatBytes, frame_->bytes.size() - sent_);
  if (now < begins_ + kByteTime * (kPreambleBytes + sent_ + bytes)) return std::nullopt;  // it has not arrived yet
  if (sent_ == 0) timed_.first = now;
  Beat beat{0, static_cast<unsigned>(bytes), sent_ + bytes == frame_->bytes.size(), false};
  std::memcpy(&beat.data, frame_->bytes.data() + sent_, bytes);
  sent_ += bytes;
  if (!beat.is_last) return beat;
  beat.is_damaged = frame_->is_damaged;
  free_ = begins_ + cable_time(frame_->bytes.size());
  timed_.last = now;
  timed_.is_damaged = frame_->is_damaged;
  timed_.bytes = std::move(frame_->bytes);
  frame_.reset();
  if (on_whole_) on_whole_(timed_);
  return beat;
}

bool MacSender::is_ready(Ticks now) const {
  if (is_in_frame_) return now + period_ > begins_ + kByteTime * frame_.bytes.size();
  return now + period_ > free_ && now >= stopped_until_;
}

void MacSender::take(Ticks now, const std::optional<Beat>& beat) {
  if (!beat) {
    const Ticks due = begins_ + kByteTime * (kPreambleBytes + frame_.bytes.size());
    if (is_in_frame_ && !is_late_ && now > due) {
      is_late_ = true;
      ++underruns_;
    }
    return;
  }
  if (!is_in_frame_) {
    is_in_frame_ = true;
    is_late_ = false;
    begins_ = std::max(now, free_);
    frame_ = {.bytes = {}, .first = now, .gap = begins_ - free_};
  }
  const std::size_t at = frame_.bytes.size();
  frame_.bytes.resize(at + beat->bytes);
  std::memcpy(frame_.bytes.data() + at, &beat->data, beat->bytes);
  if (!beat->is_last) return;
  is_in_frame_ = false;
  frame_.last = now;
  frame_.is_damaged = beat->is_damaged;
  free_ = begins_ + cable_time(frame_.bytes.size());
  busy_ += cable_time(frame_.bytes.size());
  ++frames_;
  if (sink_) sink_(frame_);
}

}  // namespace netfold::rtl
