/** Directories of configurations that hold all sorts of things: a network that is whole is found among them, or the error is ours. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { mkdirSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../testing/directory.ts";
import { checkProperty, outcomeOf } from "../testing/fuzz.ts";
import { documentText } from "../testing/fuzz_documents.ts";
import { loadNetwork } from "./load.ts";

const root = useDirectory("cni-load-fuzz-");
let directories = 0;

function newDirectory(): string {
  const path = join(root, String(directories++));
  mkdirSync(path);
  return path;
}

const WEB = JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "bridge" }] });

/** What somebody could have left in front of the file that is wanted. */
const PLANTS: Readonly<Record<string, (path: string) => Disposable | undefined | void>> = {
  "a pipe that somebody holds open": (path) => {
    Bun.spawnSync(["mkfifo", path]);
    const writer = Bun.spawn(["sh", "-c", 'exec 3<>"$1"; exec sleep 60', "sh", path]);
    return { [Symbol.dispose]: () => writer.kill() };
  },
  "a pipe": (path) => void Bun.spawnSync(["mkfifo", path]),
  "a link to a device without end": (path) => symlinkSync("/dev/zero", path),
  "a link to a terminal": (path) => symlinkSync("/dev/ptmx", path),
  "a link to itself": (path) => symlinkSync(path, path),
  "a directory": (path) => mkdirSync(path),
  "a socket": (path) => {
    const listener = Bun.listen({ unix: path, socket: { data() {} } });
    return { [Symbol.dispose]: () => listener.stop() };
  },
  "a file of 1 TB": (path) => {
    writeFileSync(path, "");
    truncateSync(path, 2 ** 40);
  },
};

test.each(Object.entries(PLANTS))("%s does not keep a network from being found", (_what, plant) => {
  const directory = newDirectory();
  using _ = plant(join(directory, "1.conflist")) ?? { [Symbol.dispose]() {} };
  writeFileSync(join(directory, "2.conflist"), WEB);
  const found = outcomeOf(() => loadNetwork("web", { directory }));
  expect(found).toMatchObject({ value: { name: "web" } });
});

test("a link is followed: that is how configuration is mounted", () => {
  const directory = newDirectory();
  writeFileSync(join(directory, "data"), WEB);
  symlinkSync("data", join(directory, "1.conflist"));
  expect(loadNetwork("web", { directory }).name).toBe("web");
});

const fileName = fc.tuple(fc.stringMatching(/^[0-9a-z.-]{0,8}$/), fc.constantFrom(".conflist", ".conf", ".json", ""))
  .map((parts) => parts.join("")).filter((name) => !/^\.*$/.test(name) && name !== "zz.conflist");

test("whatever other files hold, the network is found, or the error says which file is wrong", () => {
  const directory = newDirectory();
  checkProperty(
    fc.property(fc.array(fc.tuple(fileName, documentText), { minLength: 1, maxLength: 3 }), (files) => {
      rmSync(directory, { recursive: true });
      mkdirSync(directory);
      for (const [name, text] of files) writeFileSync(join(directory, name), text);
      writeFileSync(join(directory, "zz.conflist"), WEB);
      for (const name of ["web", "other"]) {
        const outcome = outcomeOf(() => loadNetwork(name, { directory }));
        if ("value" in outcome) expect(outcome.value.name).toBe(name);
        else expect(outcome.error.message).toMatch(/other|web|\.(conflist|conf|json)/);
      }
    }),
    250,
  );
});
