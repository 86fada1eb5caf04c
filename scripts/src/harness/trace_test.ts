import { expect, test } from "bun:test";
import { bytesOf, parseTrace } from "./trace.ts";

// Written by strace 6.1, shortened.
const TRACE = `openat(-100, "\\x2f\\x72\\x75\\x6e", 0x80800) = 8
fstat(8, {st_mode=0100444, st_size=0, ...}) = 0
setsockopt(9, 0x10e, 0xb, [1], 4)       = 0
sendto(9, [{nlmsg_len=20, nlmsg_type=0xa<<8|0x10}, "\\x2c\\x29"], 20, 0, NULL, 0) = 20
 | 00000  14 00 00 00 10 0a 05 00  01 00 00 00 00 00 00 00  ................ |
 | 00010  00 00 00 00                                       ....             |
unlink("\\x2f\\x61")                      = -1 ENOENT (No such file or directory)
+++ exited with 0 +++
`;

test("parseTrace reads calls, their arguments, results and errors", () => {
  const calls = parseTrace(TRACE);
  expect(calls.map(({ name }) => name)).toEqual(["openat", "fstat", "setsockopt", "sendto", "unlink"]);
  expect(calls[0]).toMatchObject({ args: ["-100", `"\\x2f\\x72\\x75\\x6e"`, "0x80800"], result: 8, error: "" });
  expect(calls[2].args).toEqual(["9", "0x10e", "0xb", "[1]", "4"]);
  expect(calls[4]).toMatchObject({ result: -1, error: "ENOENT" });
});

test("parseTrace collects the bytes that were sent, and takes none from the text beside them", () => {
  const [, , , send, last] = parseTrace(TRACE);
  expect(send.data.toHex()).toBe("14000000100a05000100000000000000" + "00000000");
  expect(send.args).toHaveLength(6);
  expect(last.data).toHaveLength(0);
});

test("bytesOf reads strings only", () => {
  expect(new TextDecoder().decode(bytesOf(`"\\x2f\\x72\\x75\\x6e"`))).toBe("/run");
  expect(bytesOf("NULL")).toBeUndefined();
});
