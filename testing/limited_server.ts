/** A server with two to four workers and limits of a test: `bun limited_server.ts SOCKET LIMITS`. @module */
import { SERVER_LIMITS } from "../server/limits.ts";
import { dirname } from "node:path";
import { openSockets } from "../server/sockets.ts";
import { supervise } from "../server/supervisor.ts";
import { cStringArray, sys } from "../ffi/sys/libc.ts";
import { blockForGood } from "../ffi/sys/signals.ts";
import { SIGCHLD, SIGTERM } from "../ffi/sys/uapi.ts";
import { CNI_PROGRAM } from "../scripts/src/repository.ts";

const BLOCKED = "--blocked";
const [socket = "", limits = "{}", blocked] = process.argv.slice(2);
if (blocked !== BLOCKED) {
  // Threads of bun, which the binary has not, would take the signals. They inherit what is blocked here.
  blockForGood([SIGCHLD, SIGTERM]);
  sys.execvp(process.execPath, cStringArray([process.execPath, import.meta.path, socket, limits, BLOCKED]));
}
supervise({
  sockets: openSockets(socket, false, {}),
  maxWorkers: 4,
  logFormat: "text",
  env: {},
  isOnDemand: false,
  program: CNI_PROGRAM,
  parts: {
    parts: [],
    socket,
    directory: dirname(socket),
    logFormat: "text",
    confDirectory: "/etc/cni/net.d",
    pluginDirectories: [],
    cacheDirectories: [],
    healLinks: false,
  },
  limits: { ...SERVER_LIMITS, ...JSON.parse(limits) },
  log: (message) => console.error(message),
});
