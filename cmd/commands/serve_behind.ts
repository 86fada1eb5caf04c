import { joinFirstProcess } from "../../ffi/sys/control_group.ts";
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import { overwrite } from "../../ffi/sys/file.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { SOCK_DGRAM, SOCK_NONBLOCK } from "../../ffi/sys/uapi.ts";
import { connectTo } from "../../ffi/sys/unix_socket.ts";
import type { Command } from "../command.ts";
import { isSystemdRunning, SERVE_BEHIND } from "../../server/leave_behind.ts";

/** @see syslog(3) */
const SYSLOG_PATH = "/dev/log";

const serveBehind: Command = {
  name: SERVE_BEHIND,
  summary: "have a server for the calls that follow the one that started this process",
  arguments: [],
  options: [],
  hidden: true,
  async run(_, context) {
    if (isSystemdRunning()) {
      const { startTransientUnit } = await import("../../server/transient_unit.ts");
      return startTransientUnit(process.argv0);
    }
    joinFirstProcess();
    // An engine may have told the kernel to spare its children. A sandbox may forbid to change that.
    ignoreSystemErrors(() => overwrite("/proc/self/oom_score_adj", "0"));
    sys.umask(0o077);
    // Each line is a message of its own. Another type of socket, or nobody: the server has no log.
    using log = ignoreSystemErrors(() => connectTo(SYSLOG_PATH, SOCK_DGRAM | SOCK_NONBLOCK));
    if (log) sys.dup2(log.fd, 2);
    return await context.runProgram({ ...context, programName: "cni", argv: ["serve", "--on-demand"] });
  },
};
export default serveBehind;
