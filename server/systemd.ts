import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { descriptor } from "../ffi/sys/file.ts";
import { sys } from "../ffi/sys/libc.ts";
import { AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_CLOEXEC, SOCK_DGRAM } from "../ffi/sys/uapi.ts";
import { socketAddress } from "../ffi/sys/unix_socket.ts";

/** Does nothing without systemd. @see sd_notify(3) */
export function notifySystemd(env: Readonly<Record<string, string | undefined>>, message: string): void {
  const { NOTIFY_SOCKET } = env;
  if (!NOTIFY_SOCKET) return;
  ignoreSystemErrors(() => {
    using socket = descriptor(sys.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const address = socketAddress(NOTIFY_SOCKET);
    sys.connect(socket.fd, address, address.length);
    const bytes = new TextEncoder().encode(message);
    // A manager that does not read must not stop the server.
    sys.send(socket.fd, bytes, bytes.length, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

/** Half of systemd's limit, in milliseconds; `undefined` for never. @see sd_watchdog_enabled(3) */
export function watchdogIntervalMs(
  { WATCHDOG_USEC, WATCHDOG_PID }: Readonly<Record<string, string | undefined>>,
): number | undefined {
  const isMine = !WATCHDOG_PID || WATCHDOG_PID === String(process.pid);
  return isMine && Number(WATCHDOG_USEC) > 0 ? Number(WATCHDOG_USEC) / 2000 : undefined;
}
