// The socket that clients connect to: our own, under a lock, in a directory that nobody else can write; or one that
// systemd opened for us.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hone {

struct ListeningSocket {
  UniqueFd socket;
  UniqueFd lock;     // held as long as we serve; none for an inherited socket
  std::string path;  // of our own socket; removed when it closes. The inherited one's path, for people
  bool inherited = false;
};

// Takes the path; nobody can connect yet. One that another honed has taken which takes no connections, because it
// starts or ends, is waited for. kBusy: another honed serves this path; the message says which. kInvalid: the directory
// is not to be trusted; kIo.
Result<ListeningSocket> BindSocket(const std::string& path,
                                   std::chrono::milliseconds patience = std::chrono::seconds(10));

// Whether other users may connect as far as the socket's own file goes, which is made for its owner alone; who is
// served is the server's decision. An inherited socket's file is as it is. What keeps others from it all the same, a
// directory that they may not enter, is logged.
void OpenToOthers(const ListeningSocket& bound, bool is_open);

// From now on clients can connect. Once all else is ready: who connects to a honed that then cannot start learns
// nothing.
Result<void> StartListening(const ListeningSocket& bound);

// The socket that systemd passed (LISTEN_PID, LISTEN_FDS), if it did; kInvalid if what it passed is no listening Unix
// socket.
Result<std::optional<ListeningSocket>> InheritedSocket();

// Removes the socket's file if it is ours. Before the lock goes.
void StopListening(ListeningSocket& listening);

// Tells the service manager ("READY=1", "STOPPING=1") if there is one.
void NotifyServiceManager(const std::string& state);

}  // namespace hone
