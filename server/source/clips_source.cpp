// SPDX-License-Identifier: Apache-2.0
#include "source/clips_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "base/text/counted.h"
#include "source/clips/clip_files.h"
#include "source/clips/clip_part.h"
#include "source/clips/clip_request.h"
#include "source/clips/clip_starts.h"
#include "source/file/file_fetcher.h"
#include "source/file/part_ranges.h"
#include "source/kept/dataset_id.h"
#include "source/kept/kept_datasets.h"
#include "source/media_index/indexed_media.h"
#include "source/media_index/media_index_build.h"

namespace spdld::source {
namespace {

using Sampling = ClipsSpec::Sampling;
using Unit = ClipsSpec::Unit;

// The value that tells where a clip begins, or how long a whole file is; empty: there is none.
std::string own_value(const ClipsSpec& spec) {
  if (spec.sampling == Sampling::kWhole) return "duration";
  // The listing cannot tell where clips begin that are drawn anew each epoch.
  return spec.sampling == Sampling::kRandom || spec.stack ? "" : "start";
}

// The data of an applied source, which all of its readers share.
struct ClipData {
  ListingMemory::SharePtr memory;  // that the clips and their index count in
  ClipFiles clips;
  std::shared_ptr<IndexedMedia> indexed;  // clips.index
  std::string media;                      // the index's name; empty: it is not kept
  std::size_t part = 0;                   // that the clips are of
  std::size_t sound_part = 0;             // the number of the part that has their sound
  std::size_t own_value = 0;              // the number of the value that own_value() names
  std::vector<SourceField> fields;
  std::uint64_t key = 0;  // of what a clip's bytes depend on, but its file and its begin

  bool has_sound() const { return !clips.spec.audio.empty(); }
};
using ClipDataPtr = std::shared_ptr<const ClipData>;

class ClipsSource final : public Source {
 public:
  ClipsSource(std::unique_ptr<Source> from, ClipDataPtr data)
      : from_(std::move(from)), data_(std::move(data)), clips_(data_->clips) {}

  std::uint64_t size() const override { return clips_.size(); }
  const std::string& listing_digest() const override { return clips_.listing_digest; }
  std::string values_digest() const override { return clips_.values_digest; }
  const std::vector<SourceField>& fields() const override { return data_->fields; }
  const std::vector<std::string>& classes() const override { return from_->classes(); }
  std::span<const std::int64_t> category_ids() const override { return from_->category_ids(); }

  std::string uri(std::uint64_t item) const override {
    const Place at = place(item);
    return from_->uri(at.file->item) + suffix(at);
  }
  std::string read_uri(std::uint64_t item) const override {
    const Place at = place(item);
    return from_->read_uri(at.file->item) + suffix(at);
  }
  Value value(std::uint64_t item, std::size_t value) const override {
    const Place at = place(item);
    if (value != data_->own_value) return from_->value(at.file->item, value);
    if (clips_.spec.sampling == Sampling::kWhole) return at.file->sound_seconds();
    return clips_.begin_seconds(*at.file, at.clip, 0);
  }

  Result<FetchState> fetch(std::uint64_t item, std::span<const PartRequest> requests,
                           FetchedItem& out, FetchSink& sink, std::uint64_t token) override {
    SPDLD_CHECK(requests.size() <= kMostPieces);
    const Place at = place(item);
    const ExpectedContent expected{
        .stamp = at.file->entry->stamp,
        .files = data_->indexed.get(),
        .number = static_cast<std::uint64_t>(at.file->entry - clips_.index->entries().data())};
    std::array<PartRequest, kMostPieces + ClipPieces::kMost> wanted;
    std::size_t count = 0;
    out.clips.clear();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const std::size_t first = count;
      if (is_clip(requests[i].part)) {
        Result<ClipPieces> pieces = clip_pieces(at, requests, i, out);
        if (!pieces) return tl::unexpected(pieces.error().with_context(uri(item)));
        count = add_requests(*pieces, requests[i], expected, wanted, count);
      } else {
        wanted[count++] = requests[i];
      }
      if (clips_.spec.stack) out.clips.add_pieces(count - first);
    }
    // A clip that another epoch drew is of no use; and of several pieces none can be left out.
    if (clips_.spec.sampling == Sampling::kRandom || clips_.spec.stack) out.revision.asked = false;
    return from_->fetch(at.file->item, {wanted.data(), count}, out, sink, token);
  }
  Result<std::unique_ptr<PartBytes>> open_part(std::uint64_t item,
                                               std::size_t part) const override {
    return from_->open_part(place(item).file->item, is_clip(part) ? data_->part : part);
  }

  Result<std::unique_ptr<Source>> read_by(const Credentials& reader) const override {
    SPDLD_ASSIGN(std::unique_ptr<Source> from, from_->read_by(reader));
    if (from == nullptr) return from;
    return std::make_unique<ClipsSource>(std::move(from), data_);
  }
  std::uint64_t split_hash(std::uint64_t item) const override { return place(item).file->identity; }
  bool has_part(std::uint64_t item, std::size_t part) const override {
    return is_clip(part) || from_->has_part(place(item).file->item, part);
  }
  std::uint64_t part_key(std::uint64_t item, std::size_t part) const override {
    const Place at = place(item);
    if (!is_clip(part)) return from_->part_key(at.file->item, part);
    const std::uint64_t file = mix64(from_->part_key(at.file->item, data_->part), data_->key);
    // Two times of one file may mean the same frame, whose bytes are the same.
    const std::uint64_t clip = clips_.spec.sampling == Sampling::kRandom || clips_.spec.stack
                                   ? at.clip
                                   : clips_.start(*at.file, at.clip, 0);
    return mix64(mix64(file, clip), part == data_->part ? 0 : 1);
  }
  std::string origin() const override { return from_->origin(); }
  std::string dataset() const override { return clips_dataset(from_->dataset(), data_->media); }
  void look_again() override { from_->look_again(); }
  bool has_changed() override { return from_->has_changed(); }

 private:
  struct Place {
    std::size_t number = 0;  // of the file
    const ClipFile* file = nullptr;
    std::uint64_t clip = 0;  // of the file's
  };
  Place place(std::uint64_t item) const {
    const std::size_t number = clips_.file_of(item);
    return {.number = number, .file = &clips_.files[number], .clip = item - clips_.first[number]};
  }
  bool is_clip(std::size_t part) const {
    return part == data_->part || (data_->has_sound() && part == data_->sound_part);
  }

  // The clip that request `i` is for, which is set in `out`.
  Result<ClipPieces> clip_pieces(const Place& at, std::span<const PartRequest> requests,
                                 std::size_t i, FetchedItem& out) const {
    const ClipsSpec& spec = clips_.spec;
    std::array<std::uint64_t, ClipsSpec::kMostStacked> starts;
    const std::size_t count = spec.stack ? static_cast<std::size_t>(spec.per_file) : 1;
    for (std::size_t k = 0; k < count; ++k)
      starts[k] = clips_.start(*at.file, spec.stack ? k : at.clip, out.epoch_key);
    if (starts[0] == ClipFiles::kNoStart)
      return error(Code::kDataLoss, missed_time_text(spec, *at.file));
    std::sort(starts.begin(), starts.begin() + static_cast<std::ptrdiff_t>(count));
    MediaClip& clip = out.clips.set(i);
    if (requests[i].part != data_->part)
      return make_clip_sound(spec, *at.file, clips_.sounds[at.number], starts[0], clip);
    // A piece of a clip is cut from bytes that lie together.
    const bool whole = requests[i].offset == 0 && requests[i].size_bytes == PartRequest::kToItsEnd;
    const std::size_t others = std::min(requests.size() - 1, ClipPieces::kMost - 1);
    return make_clip(spec, *at.file, {starts.data(), count}, whole ? ClipPieces::kMost - others : 1,
                     clip);
  }

  // Puts requests for the pieces behind the `count` that there are; returns their number then.
  std::size_t add_requests(const ClipPieces& pieces, const PartRequest& request,
                           const ExpectedContent& expected, std::span<PartRequest> wanted,
                           std::size_t count) const {
    for (const Piece& piece : pieces.pieces()) {
      PartRequest& each = wanted[count++];
      each = {.part = data_->part, .expected = &expected};
      if (pieces.is_whole()) {
        each.offset = request.offset;
        each.size_bytes = request.size_bytes;
        continue;
      }
      const std::uint64_t skipped = std::min(request.offset, piece.size_bytes);
      each.offset = piece.offset + skipped;
      each.size_bytes = std::min(request.size_bytes, piece.size_bytes - skipped);
    }
    return count;
  }

  // "@12.5s".
  std::string suffix(const Place& at) const {
    if (clips_.spec.stack || clips_.spec.sampling == Sampling::kWhole) return {};
    if (clips_.spec.sampling == Sampling::kRandom)
      return clips_.spec.per_file == 1 ? std::string() : fmt::format("#{}", at.clip);
    std::string seconds = fmt::format("{:.6f}", clips_.begin_seconds(*at.file, at.clip, 0));
    seconds.erase(seconds.find_last_not_of('0') + 1);
    if (seconds.ends_with('.')) seconds.pop_back();
    return "@" + seconds + "s";
  }

  const std::unique_ptr<Source> from_;
  const ClipDataPtr data_;
  const ClipFiles& clips_;
};

class ClipsOpener {
 public:
  ClipsOpener(std::unique_ptr<Source> from, const ClipsSpec& spec, const SourceOptions& options)
      : from_(std::move(from)),
        spec_(spec),
        options_(options),
        key_(spec.unit == Unit::kFrames ? "source.clips" : "source.windows") {}

  Result<std::unique_ptr<Source>> open(const std::string& media) {
    auto data = std::make_shared<ClipData>();
    if (options_.prober == nullptr)
      return error(Code::kUnimplemented,
                   std::string(key_) + ": this spdld was built without what reads media files");
    SPDLD_TRY(find_part(*data));
    SPDLD_TRY(check_names());
    SPDLD_TRY(check_times());
    data->memory = options_.share();
    SPDLD_ASSIGN(OpenedMediaIndex index, media.empty() || options_.kept == nullptr
                                             ? make_index(data->part, data->memory)
                                             : reopen(data->part, media, data->memory));
    data->media = index.name;
    ClipFaults faults(*from_);
    auto cut = cut_clips(spec_, *from_, data->part, std::move(index.index),
                         {.items = options_.max_items,
                          .item_bytes = options_.max_file_bytes,
                          .memory = data->memory},
                         faults);
    if (!cut) return tl::unexpected<Status>(cut.error().with_context(key_));
    data->clips = *std::move(cut);
    SPDLD_TRY(judge(data->clips, faults.all(), media.empty()));
    data->indexed = std::make_shared<IndexedMedia>(data->clips.index, *options_.prober);
    SPDLD_TRY(name_fields(*data));
    data->key = name_key(fmt::format("{} {} {} {} {:.17g} {} {}{}", static_cast<int>(spec_.unit),
                                     spec_.stream, spec_.frames, spec_.stride, spec_.seconds,
                                     spec_.stack ? spec_.per_file : 0, spec_.audio_stream,
                                     spec_.sampling == Sampling::kWhole ? " whole" : ""));
    return std::make_unique<ClipsSource>(std::move(from_), std::move(data));
  }

 private:
  Status refuse(const std::string& text) const {
    return {Code::kInvalidArgument, std::string(key_) + text};
  }
  void warn(std::string text) const {
    if (options_.warnings != nullptr) options_.warnings->push_back(std::move(text));
  }

  Status find_part(ClipData& data) {
    Result<ClipPart> found = find_clip_part(spec_, *from_);
    if (!found) return refuse(".field: " + found.error().message());
    part_ = *std::move(found);
    data.part = part_.index;
    return {};
  }
  // Messages name the part that files are of where an item has several.
  std::string of_part() const {
    return part_.others.empty() ? "" : " of the part '" + part_.name + "'";
  }
  std::string other_parts() const {
    return part_.others.empty()
               ? ""
               : "; 'field:' takes another part, of which there are " + part_.others;
  }

  Status check_names() const {
    const std::string own = own_value(spec_);
    for (const SourceField& field : from_->fields()) {
      if (field.name == spec_.audio)
        return refuse(".audio: there is a field '" + spec_.audio + "' already; name another");
      if (field.name == own)
        return refuse(": each has a field '" + own +
                      "', and so does the source; give that one another name, or leave it out");
    }
    if (!own.empty() && spec_.audio == own)
      return refuse(".audio: '" + own + "' tells where each clip begins; name another");
    return {};
  }

  Status check_times() const {
    if (spec_.times_field.empty()) return {};
    for (const SourceField& field : from_->fields()) {
      if (field.kind != SourceField::Kind::kValue || field.name != spec_.times_field) continue;
      if (field.type == ValueType::kFloat64 || field.type == ValueType::kInt64 ||
          field.type == ValueType::kFloat64List || field.type == ValueType::kInt64List)
        return {};
      return refuse(".timestamps: the values of '" + spec_.times_field + "' are " +
                    std::string(value_type_name(field.type)) +
                    "; name a field of numbers, or of lists of them");
    }
    return refuse(".timestamps: the source has no value '" + spec_.times_field +
                  "'; write a list of seconds, or the name of a field of the listing that holds "
                  "them");
  }

  Result<OpenedMediaIndex> make_index(std::size_t part,
                                      const ListingMemory::SharePtr& memory) const {
    MediaIndexOptions how;
    how.memory = memory;
    if (options_.kept != nullptr) how.directory = options_.kept->media_indexes().directory();
    how.threads = options_.listing_threads;
    how.stop = options_.stop;
    how.warnings = options_.warnings;
    if (options_.progress)
      how.progress = [this](const MediaIndexProgress& so_far) {
        options_.progress(so_far.done, "looked into " + std::to_string(so_far.done) + " of " +
                                           counted(so_far.files, "media file"));
      };
    auto made = open_media_index(*from_, part, *options_.prober, how);
    if (!made && made.error().code() == Code::kResourceExhausted)
      return tl::unexpected<Status>(made.error().with_context(key_));
    SPDLD_ASSIGN(OpenedMediaIndex opened, std::move(made));
    if (options_.kept != nullptr)
      opened.index = options_.kept->media_indexes().share(opened.name, std::move(opened.index));
    return opened;
  }

  // A source that was applied has the clips that it had, whatever the files are by now.
  Result<OpenedMediaIndex> reopen(std::size_t part, const std::string& media,
                                  const ListingMemory::SharePtr& memory) const {
    Result<std::shared_ptr<const MediaIndex>> kept = options_.kept->media_indexes().open(media);
    if (kept && has_all(**kept, part))
      return OpenedMediaIndex{.index = *std::move(kept), .name = media};
    if (options_.from_kept_alone)
      return error(Code::kDataLoss,
                   kept ? "the index " + media + " is of other files" : kept.error().message());
    const std::string why =
        "what was applied cannot be opened: " +
        (kept ? "the index " + media + " is of other files" : kept.error().message());
    const std::string way_out =
        "; bring that file back, or apply the pipeline again and start its jobs anew";
    Result<OpenedMediaIndex> again = make_index(part, memory);
    if (!again && (again.error().code() == Code::kCancelled ||
                   again.error().code() == Code::kResourceExhausted))
      return again;
    if (!again)
      return error(Code::kDataLoss,
                   why + ", nor indexed again: " + again.error().message() + way_out);
    if (again->name != media)
      return error(Code::kDataLoss, why + ", and the media files are others by now" + way_out);
    warn(why + "; the media files were indexed again, and are the same");
    return again;
  }

  bool has_all(const MediaIndex& index, std::size_t part) const {
    for (std::uint64_t item = 0; item < from_->size(); ++item) {
      if (from_->has_part(item, part) && index.find(from_->part_key(item, part)) == nullptr)
        return false;
    }
    return true;
  }

  // Faults of files are an error or a warning, or leave nothing.
  Status judge(const ClipFiles& clips, const std::vector<ClipFault>& faults, bool is_new) const {
    std::string text;
    for (const ClipFault& fault : faults) {
      const bool is_error = !fault.status.ok();
      if (is_error && spec_.broken == ClipsSpec::Broken::kError)
        return {fault.status.code(),
                std::string(key_) + ": " + fault.status.message() +
                    "; mend or remove it, or write 'broken: skip', which leaves such files out" +
                    other_parts()};
      text +=
          fmt::format("{}{} {}, such as {}", text.empty() ? "" : "; ",
                      fault.of_times ? counted(fault.count, "time") : std::to_string(fault.count),
                      fault.reason, fault.example);
    }
    if (clips.size() == 0)
      return {Code::kNotFound,
              fmt::format("{}: none of the {}{} has one: {}{}", key_,
                          counted(from_->size(), "file"), of_part(), text, other_parts())};
    if (text.empty() || !is_new) return {};
    const std::string taken = spec_.sampling == Sampling::kWhole
                                  ? std::string("are left")
                                  : fmt::format("have some, {} in all", clips.size());
    warn(fmt::format("{}: {} of {}{} {}: {}{}", key_, clips.files.size(),
                     counted(from_->size(), "file"), of_part(), taken, text, other_parts()));
    return {};
  }

  Status name_fields(ClipData& data) const {
    std::size_t parts = 0;
    std::size_t values = 0;
    for (const SourceField& field : from_->fields()) {
      const bool is_part = field.kind == SourceField::Kind::kPart;
      (is_part ? parts : values) += 1;
      data.fields.push_back(field);
      if (is_part && field.index == data.part) {
        data.fields.back().clip = data.clips.shape;
        data.fields.back().text = false;
        data.fields.back().optional = false;  // what has none gives no clips
      }
    }
    data.sound_part = parts;
    if (data.has_sound()) {
      SPDLD_TRY(FileFetcher::check_parts(parts + 1, key_));
      const auto behind = std::find_if(
          data.fields.begin(), data.fields.end(),
          [](const SourceField& field) { return field.kind == SourceField::Kind::kValue; });
      data.fields.insert(
          behind, SourceField{.name = spec_.audio, .index = parts, .clip = data.clips.sound_shape});
    }
    data.own_value = values;
    const std::string own = own_value(spec_);
    if (!own.empty())
      data.fields.push_back({.name = own,
                             .kind = SourceField::Kind::kValue,
                             .index = values,
                             .type = ValueType::kFloat64});
    return {};
  }

  std::unique_ptr<Source> from_;
  const ClipsSpec& spec_;
  const SourceOptions& options_;
  const char* const key_;
  ClipPart part_;
};

}  // namespace

Result<std::unique_ptr<Source>> open_clips(std::unique_ptr<Source> from, const ClipsSpec& spec,
                                           const std::string& media, const SourceOptions& options) {
  return ClipsOpener(std::move(from), spec, options).open(media);
}

}  // namespace spdld::source
