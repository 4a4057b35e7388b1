#include "group/via_peers/rank_tags.h"

#include "wire/tag.h"

namespace netfold::group {
namespace {

static_assert(link::kTaggedHeaderBytesMax <= wire::kTaggedHeadBytesMax);

class RankTags final : public link::Tags {
 public:
  RankTags(const wire::TagKey& sends, const wire::TagKey& receives) : sends_(sends), receives_(receives) {}

  link::Tag of(std::span<const std::byte> header, std::span<const std::byte> bytes) const override {
    return sends_.tag(header, bytes);
  }
  bool is_right(std::span<const std::byte> header, std::span<const std::byte> bytes,
                std::span<const std::byte> tag) const override {
    return receives_.is_right(header, bytes, tag);
  }

 private:
  wire::Tagger sends_, receives_;
};

}  // namespace

std::unique_ptr<link::Tags> rank_tags(const control::Secret& secret, std::string_view stream,
                                      const control::RankPair& pair, bool asks) {
  return std::make_unique<RankTags>(secret.stream_key(stream, pair, asks), secret.stream_key(stream, pair, !asks));
}

}  // namespace netfold::group
