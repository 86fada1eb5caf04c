import { afterAll, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { newCliSandboxes } from "../../../testing/cli.ts";
import { netnsTest } from "../../../testing/netns.ts";

const { root, cni, bench } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

netnsTest("check, del, gc and status print a document with --json, and else nothing", ({ host, container }) => {
  const { run, network } = bench(host);
  network("web");
  const documentOf = (words: string) => {
    const { exitCode, stdout } = run(`${words} --json`);
    return [exitCode, JSON.parse(stdout)];
  };
  const attachment = { network: "web", containerId: "c1", ifname: "eth0" };
  const words = `web ${container.path} --container-id c1`;
  expect(run("status web").stdout).toBe("");
  expect(documentOf("status web")).toEqual([0, { network: "web", warnings: [] }]);
  expect(run(`add ${words}`).exitCode).toBe(0);
  expect(run(`check ${words}`).stdout).toBe("");
  expect(run("check web nowhere --container-id c2").stderr).toContain('is known; did you mean "c1"?\n');
  expect(documentOf(`check ${words}`)).toEqual([0, { ...attachment, warnings: [] }]);
  const refused = run("gc web");
  const suggestions = refused.stderr.replaceAll(/ --(conf|plugin|cache)-dir \S+/g, "").split("\n").slice(1, 3);
  expect([refused.exitCode, suggestions]).toEqual([2, [
    "     to detach what is gone only: cni run gc web --valid=c1/eth0",
    "     to detach all: cni run gc web --all",
  ]]);
  const [, suggested = ""] = /only: cni run (.*)/.exec(refused.stderr)!;
  expect(documentOf(suggested)).toEqual([0, { network: "web", removed: [] }]);
  expect(documentOf("gc web --valid c1")).toEqual([0, { network: "web", removed: [] }]);
  expect(documentOf("gc web --all")).toEqual([0, {
    network: "web",
    removed: [{ containerId: "c1", ifname: "eth0" }],
  }]);
  expect(documentOf(`del ${words}`)).toEqual([0, {
    ...attachment,
    warnings: [expect.stringContaining("is not remembered")],
  }]);
  expect(documentOf(`check ${words}`)).toMatchObject([1, { code: 3 }]);
});

netnsTest("status --json has the warnings about a configuration", ({ host }) => {
  const { run } = bench(host);
  const plugins = [{ type: "loopback", lop: 1 }];
  const { stdout, stderr } = run("status - --json", { stdin: JSON.stringify({ name: "x", plugins }) });
  const { warnings } = JSON.parse(stdout);
  expect(warnings).toContainEqual(expect.stringContaining("plugins[0].lop is not read"));
  expect(stderr).toBe(warnings.map((warning: string) => `cni: ${warning}\n`).join(""));
});

test("netns list --json has the names that it prints, and their paths", () => {
  const directory = 'mount -t tmpfs tmpfs /run && mkdir /run/netns && touch /run/netns/b "/run/netns/a b" && exec "$@"';
  const list = (...words: string[]) =>
    cni(["netns", "list", ...words], { wrapper: ["unshare", "-m", "sh", "-c", directory, "sh"] }).stdout;
  expect(list()).toBe("a b\nb\n");
  expect(JSON.parse(list("--json"))).toEqual(["a b", "b"].map((name) => ({ name, path: `/run/netns/${name}` })));
});

test("run gc names attachments by their namespaces, where ids were made from them", () => {
  const script =
    `mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib && "$@" netns add web && "$@" netns add 'a b' &&
    for name in web 'a b'; do "$@" run add default "$name" --conf-dir ${root} --cache-dir /run/cache; done >/dev/null &&
    "$@" run gc default --cache-dir /run/cache`;
  const { exitCode, stderr } = cni([], { wrapper: ["unshare", "-mn", "sh", "-c", script, "sh"] });
  expect([exitCode, stderr]).toEqual([
    2,
    expect.stringMatching(
      / only: cni run gc default --valid=cnitool-[0-9a-f]+\/eth0 --valid=web\/eth0 --cache-dir \/run\/cache\n/,
    ),
  ]);
});

test("run add suggests the namespace that is meant", () => {
  const names = 'mount -t tmpfs tmpfs /run && mkdir /run/netns && touch /run/netns/web && exec "$@"';
  const { exitCode, stderr } = cni(["run", "add", "default", "wbe"], {
    wrapper: ["unshare", "-mn", "sh", "-c", names, "sh"],
  });
  expect([exitCode, stderr]).toEqual([
    1,
    'cni: Cannot open network namespace "/run/netns/wbe": there is no such file; did you mean "web"?\n' +
    "     make one of that name: cni netns add wbe\n",
  ]);
});
