import { expect, test } from "bun:test";
import { join } from "node:path";
import { sys } from "../../../ffi/sys/libc.ts";
import { SOCK_NONBLOCK, SOCK_STREAM } from "../../../ffi/sys/uapi.ts";
import { bindSocket, connectTo } from "../../../ffi/sys/unix_socket.ts";
import { useDirectory } from "../../../testing/directory.ts";
import { askLine } from "./ask_line.ts";

const directory = useDirectory("cni-ask-");

test("who hangs is late, also where no more can wait, and who has ended is absent", () => {
  const path = join(directory, "socket");
  expect(askLine(path, {}, 60_000)).toMatchObject({ isAbsent: true });
  {
    using listener = bindSocket(path, SOCK_STREAM);
    sys.listen(listener.fd, 0);
    expect(askLine(path, {}, 10)).toMatchObject({ isLate: true });
    // What has asked is still in the queue.
    expect(() => connectTo(path, SOCK_STREAM | SOCK_NONBLOCK)).toThrow("EAGAIN");
    expect(askLine(path, {}, 60_000)).toMatchObject({ isLate: true });
  }
  expect(askLine(path, {}, 60_000)).toMatchObject({ isAbsent: true });
});
