import { afterAll, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { newCliSandboxes } from "../../../testing/cli.ts";

const { root, cni } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

const NAMES = 'mount -t tmpfs tmpfs /run && mkdir /run/netns && touch /run/netns/web "/run/netns/a b" && exec "$@"';
const netns = (...words: string[]) => cni(["netns", ...words], { wrapper: ["unshare", "-m", "sh", "-c", NAMES, "sh"] });

test.each([
  [["exec", "wbe", "true"], 'There is no network namespace "wbe" in /run/netns; did you mean "web"?'],
  [["del", "wbe"], 'There is no network namespace "wbe" in /run/netns; did you mean "web"?'],
  [["del", "x/y"], 'There is no network namespace "x/y" in /run/netns'],
  [["add", "web"], 'There is a network namespace "web" in /run/netns already'],
])("cni netns %j says which name is wrong", (words, message) => {
  const { exitCode, stdout, stderr } = netns(...words);
  expect([exitCode, stdout, stderr.split("\n")[0]]).toEqual([1, "", `cni: ${message}`]);
});

test("the command that netns add suggests can be pasted", () => {
  expect(netns("add", "a b").stderr).toContain("\n     to get an empty one, type first: cni netns del 'a b'\n");
});

test("netns add brings lo up, so that programs in it reach 127.0.0.1", () => {
  const script = `${
    NAMES.replace(' && exec "$@"', "")
  } && "$@" netns add up && "$@" netns exec up ip -o -4 addr show up`;
  const { exitCode, stdout, stderr } = cni([], { wrapper: ["unshare", "-m", "sh", "-c", script, "sh"] });
  expect([exitCode, stderr, stdout]).toEqual([0, "", expect.stringContaining("lo    inet 127.0.0.1/8")]);
});
