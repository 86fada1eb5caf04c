import { expect, test } from "bun:test";
import { parseMac } from "../address.ts";
import { attrs } from "./attrs.ts";
import { cstr, macCodec, Reader, Writer } from "./codec.ts";

const spec = attrs(() => ({ mac: [1, macCodec], name: [3, cstr] }));

test("a hardware address is read and written", () => {
  const w = new Writer();
  spec.write(w, { mac: parseMac("0a:58:0a:01:00:02") });
  expect(w.written().toHex()).toBe("0a000100" + "0a580a010002" + "0000");
  expect<string | undefined>(spec.read(new Reader(w.written())).mac).toBe("0a:58:0a:01:00:02");
});

test.each([["tunl0 and sit0", 4], ["ip6tnl0", 16], ["InfiniBand", 20], ["nobody", 0]])(
  "an address such as %s has, of %d bytes, is left out",
  (_, length) => {
    const header = `${(4 + length).toString(16).padStart(2, "0")}000100`;
    const message = Uint8Array.fromHex(`${header}${"0a".repeat(length)}` + "0700030074" + "300000");
    expect(spec.read(new Reader(message))).toEqual({ name: "t0" });
    expect(spec.read(new Reader(message))).not.toHaveProperty("mac");
  },
);
