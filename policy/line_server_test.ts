import { expect, test } from "bun:test";
import { join } from "node:path";
import { useDirectory } from "../testing/directory.ts";
import { serveLines } from "./line_server.ts";

const directory = useDirectory("cni-lines-");

test("lines may come in pieces, and a long answer comes whole", async () => {
  const path = join(directory, "socket");
  using _server = serveLines(path, (line) => Promise.resolve({ line, padding: "x".repeat(4 * 1024 * 1024) }));
  const lines: { line: string; padding: string }[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  let text = "";
  const client = await Bun.connect({
    unix: path,
    socket: {
      data(_, bytes) {
        text += bytes.toString("latin1");
        if (text.split("\n").length < 3) return;
        lines.push(...text.trim().split("\n").map((line) => JSON.parse(line)));
        resolve();
      },
    },
  });
  const bytes = Buffer.from('"pod \u00e4"\n"b"\n');
  for (const byte of bytes) {
    client.write(Uint8Array.of(byte));
    await Bun.sleep(1);
  }
  await promise;
  client.end();
  expect(lines.map(({ line }) => Buffer.from(line, "latin1").toString())).toEqual(['"pod \u00e4"', '"b"']);
  expect(lines.map(({ padding }) => padding.length)).toEqual([4 * 1024 * 1024, 4 * 1024 * 1024]);
});
