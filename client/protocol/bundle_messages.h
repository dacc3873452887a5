// Records on their way into bundles and out of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/protocol/message_traits.h"

namespace hone {

// Records for a bundle, which the client writes and signs: honed never sees a secret key. By class, then kernel, in
// several replies.
struct ExportRequest {
  std::vector<std::string> selection;  // beginnings of class names or of fingerprints; none: all
  std::vector<std::string> targets;    // whole texts, or their first words; none: all
  bool with_artifacts = false;         // also the code that was checked here
  HONE_FIELDS(selection, targets, with_artifacts)
};
struct ExportRow {
  std::string record;  // EncodeRecord, version 1: docs/bundle_format.md
  std::string class_text;
  uint64_t calls = 0;
  std::string artifact;  // "": none
  HONE_FIELDS(record, class_text, calls, artifact)
};
struct ExportReply {
  std::vector<ExportRow> rows;
  bool more = false;
  HONE_FIELDS(rows, more)
};

// A bundle on its way to honed, in pieces. Only for honed's own user and root.
struct UploadRequest {
  uint64_t upload = 0;  // 0 in the first; else the number that its reply gave
  uint64_t total = 0;   // bytes of all pieces
  uint64_t offset = 0;  // of this one: where the last one ended
  std::string bytes;
  HONE_FIELDS(upload, total, offset, bytes)
};
struct UploadReply {
  uint64_t upload = 0;
  uint64_t received = 0;  // bytes so far
  HONE_FIELDS(upload, received)
};

// Takes up a bundle that was uploaded. In several replies; nothing is changed before the first.
struct ImportRequest {
  uint64_t upload = 0;
  std::string trust;  // a public key file's text: trusted for this import as if it lay among the trusted keys
  HONE_FIELDS(upload, trust)
};
struct ImportRow {
  std::string fingerprint;
  std::string class_name;
  std::string target;
  std::string fate;  // added, replaced, kept (what was there), refused
  std::string why;
  HONE_FIELDS(fingerprint, class_name, target, fate, why)
};
struct ImportReply {
  std::vector<ImportRow> rows;
  std::string bundle;
  uint64_t version = 0;
  std::string vouched;          // unsigned, unknown, known
  std::string key;              // the trusted key's name
  uint64_t total = 0;           // records of the bundle
  uint64_t artifacts = 0;       // taken so far, to be checked before they are served
  uint64_t artifacts_left = 0;  // left out so far, and …
  std::string why_left;         // … why
  bool more = false;
  HONE_FIELDS(rows, bundle, version, vouched, key, total, artifacts, artifacts_left, why_left, more)
};

}  // namespace hone
