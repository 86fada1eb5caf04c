import { expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";
import { programDirectory } from "./programs.ts";

const NAME = "test";

/** What is built for it takes ten minutes, which no test run is to spend unasked. */
const withKubernetes = existsSync(programDirectory())
  ? test
  : (name: string, ..._: unknown[]) => test.skip(`${name} # Kubernetes is not built: scripts/kubernetes up`, () => {});

function run(...words: readonly string[]): { readonly exitCode: number; readonly output: string } {
  const { exitCode, stdout, stderr } = Bun.spawnSync(["scripts/kubernetes", `--name=${NAME}`, ...words], {
    cwd: REPOSITORY_ROOT,
    stdin: "ignore",
    stderr: "pipe",
  });
  return { exitCode, output: `${stdout}${stderr}` };
}

/** What a cluster could leave: processes, mounts, links, groups, files. */
const remains = (): readonly string[] => [
  ...processes(),
  ...readFileSync("/proc/self/mountinfo", "utf8").split("\n").map((line) => line.split(" ").slice(3, 6).join(" ")),
  ...readdirSync("/sys/class/net"),
  ...[".", ...readdirSync("/sys/fs/cgroup")].flatMap((hierarchy) => cgroups(join("/sys/fs/cgroup", hierarchy))),
  ...["/run", "/srv", "/var/lib", "/opt", "/etc/cni"].flatMap((path) =>
    readdirSync(path).map((name) => `${path}/${name}`)
  ),
];

const cgroups = (hierarchy: string): readonly string[] =>
  readdirSync(hierarchy).filter((name) => name.startsWith("cni-kubernetes")).map((name) => `${hierarchy}/${name}`);

function processes(): readonly string[] {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((pid) => {
    try {
      const name = readFileSync(`/proc/${pid}/comm`, "utf8").trim();
      return /^(kube|etcd|containerd|coredns|agnhost|unshare)/.test(name) ? [`${pid} ${name}`] : [];
    } catch {
      return [];
    }
  });
}

withKubernetes("a node becomes ready with the network of this checkout, and nothing is left of it", () => {
  const before = remains();
  expect(run("up", "1").output).toContain("Ready: 1 nodes");
  expect(run("up", "1").output).toContain(`The cluster "${NAME}" is up`);
  const answer = run(
    "shell",
    "kubectl",
    "get",
    "nodes",
    "-o",
    "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}",
  );
  expect(answer.output).toEndWith("True");
  expect(run("down")).toEqual({ exitCode: 0, output: "" });
  expect(remains()).toEqual(before);
}, 180_000);

withKubernetes("an interrupted start leaves nothing", async () => {
  const before = remains();
  const child = Bun.spawn(["scripts/kubernetes", "up", `--name=${NAME}`], {
    cwd: REPOSITORY_ROOT,
    stdin: "ignore",
    stdout: "pipe",
  });
  for await (const text of child.stdout) if (new TextDecoder().decode(text).includes("The API server answers")) break;
  child.kill("SIGINT");
  expect(await child.exited).toBe(130);
  expect(remains()).toEqual(before);
}, 180_000);

test("a migration from a network that is not known is refused", () => {
  const { exitCode, output } = run("migrate", "calico");
  expect(exitCode).toBe(2);
  expect(output).toStartWith('FROM is "calico", expected flannel or ranges');
});
