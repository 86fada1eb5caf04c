import { afterAll, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import type { Netns } from "../../ffi/netns/netns.ts";
import { type CliSandbox, newCliSandboxes } from "../../testing/cli.ts";
import { type Namespaces, netnsTest, newNamespaces, until } from "../../testing/netns.ts";
import { shellWords } from "../../testing/shell_words.ts";

const { root, cni, bench } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

const showWords = (
  { conf, cache }: CliSandbox,
  ...words: string[]
) => ["show", ...words, "--conf-dir", conf, "--cache-dir", cache, "--plugin-dir", ":"];

type FinishedProcess = ReturnType<typeof cni>;

function show(host: Netns, sandbox: CliSandbox, ...words: string[]): FinishedProcess {
  return host.run<FinishedProcess>(() => cni(showWords(sandbox, ...words)));
}

/** Attaches container `c1` to network "web". @returns once the kernel has told that the links are up */
async function attachToWeb({ host, container }: Namespaces): Promise<CliSandbox> {
  const sandbox = bench(host);
  sandbox.network("web");
  expect(sandbox.run(`add web ${container.path} --container-id c1`).exitCode).toBe(0);
  await until(() => show(host, sandbox).stdout.match(/ up, mtu/g)?.length === 3);
  return sandbox;
}

test("cni show prints a tree, JSON, a graph and a picture", async () => {
  using namespaces = newNamespaces();
  const { host, container } = namespaces;
  const sandbox = await attachToWeb(namespaces);
  const text = show(host, sandbox);
  expect([text.exitCode, text.stderr]).toEqual([0, ""]);
  const tree = text.stdout.replace(/veth\w+/, "VETH").replace(container.path, "PATH").replace(/, packets.*/g, "");
  expect(tree).toBe(`host
└─ bridge br9  network web, up, mtu 1500
   └─ port VETH  up, mtu 1500
      └─ container c1  network web, PATH
         └─ interface eth0  veth, up, mtu 1500
            └─ address 10.9.0.2/24
`);
  const [byFormat, byOption] = [show(host, sandbox, "c1", "--format", "JSON"), show(host, sandbox, "web", "--json")];
  const containers = ({ stdout }: FinishedProcess) =>
    // deno-lint-ignore no-explicit-any -- what the command prints
    JSON.parse(stdout).devices[0].ports.map(({ attachment }: any) => attachment.containerId);
  expect([containers(byFormat), containers(byOption)]).toEqual([["c1"], ["c1"]]);
  expect(show(host, sandbox, "--format=dot").stdout).toStartWith("digraph cni {\n");
  expect(show(host, sandbox, container.path, "--format=svg").stdout).toMatch(/>c1<.*>eth0 {2}web</s);
});

test("cni show fits a terminal, and colours only there", async () => {
  using namespaces = newNamespaces();
  const { host } = namespaces;
  const sandbox = await attachToWeb(namespaces);
  const inTerminal = (env: string) => {
    const program = sandbox.command("list").slice(0, 2);
    const command = `stty cols 40; exec env ${env} ${shellWords(...program, ...showWords(sandbox))}`;
    const { stdout } = host.run(() => Bun.spawnSync(["script", "-qec", command, "/dev/null"], { stdin: "ignore" }));
    return stdout.toString().replaceAll("\r", "");
  };
  const coloured = inTerminal("-u NO_COLOR TERM=xterm");
  expect(coloured).toContain("\u001b[2mbridge\u001b[22m \u001b[1mbr9\u001b[22m");
  const plain = inTerminal("NO_COLOR=1");
  expect(Bun.stripANSI(coloured).replace(/\d+ in \d+ out/g, "")).toBe(plain.replace(/\d+ in \d+ out/g, ""));
  expect(plain).not.toContain("\u001b");
  expect(Math.max(...plain.split("\n").map((line) => Bun.stringWidth(line)))).toBeWithin(30, 41);
});

netnsTest("cni show says what it does not know, and suggests", ({ host }) => {
  const sandbox = bench(host);
  sandbox.network("web");
  const unknown = show(host, sandbox, "wbe");
  expect([unknown.exitCode, unknown.stdout]).toEqual([1, ""]);
  expect(unknown.stderr).toContain(
    'Cannot show "wbe": no network, namespace or container has this name; did you mean "web"?',
  );
  expect(JSON.parse(show(host, sandbox, "wbe", "--json").stdout)).toMatchObject({ code: 7 });
  expect(JSON.parse(show(host, sandbox, "wbe", "--format", "json").stdout)).toMatchObject({ code: 7 });
  const format = show(host, sandbox, "--format", "pdf");
  expect([format.exitCode, format.stderr]).toEqual([
    2,
    'cni: --format must be one of text, json, dot, svg: got "pdf"\n     see "cni show --help"\n',
  ]);
  expect(show(host, sandbox, "web")).toEqual({
    exitCode: 0,
    stdout: "host  no container\n",
    stderr: 'cni: Nothing is attached there: "web"\n',
  });
  const { stdout, stderr } = show(host, sandbox);
  expect(stdout).toStartWith("host  no container\n");
  expect(stderr).toContain('No container is attached; to attach a namespace "web": cni netns add web && cni run add ');
});

test("cni show describes its formats", () => {
  expect(cni(["show", "--help"]).stdout).toContain("cni show [NETWORK|NETNS|CONTAINER] [OPTION…]");
});
