import { expect, test } from "bun:test";
import { chooseFileName } from "./file_name.ts";

/** The order of bytes, as coreutils have it. */
function sortNames(names: readonly string[]): string[] {
  const { stdout } = Bun.spawnSync(["sort"], { stdin: Buffer.from(names.join("\n")), env: { LC_ALL: "C" } });
  return stdout.toString().trim().split("\n");
}

test.each([
  [[], "10-web.conflist"],
  [["10-a.conflist"], "11-web.conflist"],
  [["87-podman-bridge.conflist", "10-x.conf"], "88-web.conflist"],
  [["99-z.conflist"], "z10-web.conflist"],
  [["podtest.conflist", "10-x.conf"], "z10-web.conflist"],
  [["z98-a.conflist"], "z99-web.conflist"],
  [["100-a.conflist"], "11-web.conflist"],
])("behind %j comes %s", (present, name) => {
  expect(chooseFileName("web", present)).toBe(name);
  expect(sortNames([name, ...present]).at(-1)).toBe(name);
});

test("a file that nothing sorts behind is named", () => {
  expect(() => chooseFileName("web", ["zz.conf"])).toThrow('behind "zz.conf"');
});
