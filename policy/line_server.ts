/** A socket on which each line of JSON is answered by one. @module */
import { removeFile } from "../ffi/sys/file.ts";

interface Client {
  readonly decoder: TextDecoder;
  /** What has come of the next line. */
  text: string;
  unsent: Uint8Array;
}

const MAX_LINE_LENGTH = 1024 * 1024;

/** @param answer never throws */
export function serveLines(path: string, answer: (line: string) => Promise<object>): Disposable {
  removeFile(path);
  const listener = Bun.listen<Client>({
    unix: path,
    socket: {
      open(socket) {
        socket.data = { decoder: new TextDecoder(), text: "", unsent: new Uint8Array() };
      },
      data(socket, bytes) {
        const { data } = socket;
        const lines = (data.text + data.decoder.decode(bytes, { stream: true })).split("\n");
        data.text = lines.pop()!;
        if (data.text.length > MAX_LINE_LENGTH) return void socket.end();
        for (const line of lines) {
          void answer(line).then((document) => {
            data.unsent = Buffer.concat([data.unsent, Buffer.from(`${JSON.stringify(document)}\n`)]);
            sendMore(socket);
          });
        }
      },
      drain: sendMore,
    },
  });
  return { [Symbol.dispose]: () => listener.stop(true) };
}

/** A socket takes no more than fits into its buffer. */
function sendMore(socket: Bun.Socket<Client>): void {
  const { data } = socket;
  if (data.unsent.length === 0) return;
  data.unsent = data.unsent.subarray(Math.max(0, socket.write(data.unsent)));
}
