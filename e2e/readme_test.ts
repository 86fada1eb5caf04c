/** What README.md and docs/operations.md show works when it is pasted: README from top to bottom, a complete network. */
import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { compileShim } from "../scripts/src/build/shim.ts";
import { hostLibraries } from "../scripts/src/image/main.ts";
import { gzip, pluginArchive } from "../scripts/src/release/plugin_archive.ts";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { CNI_PROGRAM } from "../testing/binary.ts";
import { shellWords } from "../testing/shell_words.ts";

/** What the commands write below. */
const DIRECTORIES = ["/etc", "/opt", "/var/lib", "/run"];

function readSection(file: string, title: string): string {
  const text = readFileSync(join(REPOSITORY_ROOT, file), "utf8");
  return text.split(`\n## ${title}\n`)[1]?.split("\n## ")[0] ?? "";
}

const commandsOf = (section: string): string[] => [...section.matchAll(/^ {4}(.+)$/gm)].map(([, line = ""]) => line);

/** Runs commands in the place of a build, on a host without networks. @returns what they printed */
function runOnNewHost(...commands: string[]): string {
  return runOnNewHostIn(dirname(dirname(CNI_PROGRAM)), ...commands);
}

function runOnNewHostIn(directory: string, ...commands: string[]): string {
  const script = [
    ...DIRECTORIES.map((mountPoint) => `mount -t tmpfs tmpfs ${mountPoint}`),
    `cd ${shellWords(directory)}`,
    ...commands,
    "echo at the end: && cni run list && cni netns list",
  ].join("\n");
  const { exitCode, stdout, stderr } = Bun.spawnSync(
    ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-ec", script],
    { env: { PATH: process.env.PATH }, stdin: "ignore" },
  );
  const said = `${stdout}${stderr}`;
  expect([exitCode, said]).toEqual([0, said]);
  const [during = "", after = ""] = stdout.toString().split("at the end:\n");
  // The head of the table of attachments, no attachment and no namespace.
  expect(after.trim().split("\n")).toHaveLength(1);
  return during;
}

test("README.md stays short enough to be read", () => {
  const text = readFileSync(join(REPOSITORY_ROOT, "README.md"), "utf8");
  expect(text.split("\n").length - 1).toBeLessThanOrEqual(150);
  expect(Buffer.byteLength(text)).toBeLessThanOrEqual(9 * 1024);
});

test("README, pasted from top to bottom, works: to install, the first five minutes, a network of one's own", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-readme-"));
  try {
    const { version } = JSON.parse(readFileSync(join(REPOSITORY_ROOT, "package.json"), "utf8"));
    const archive = `cni-plugins-linux-amd64-v${version}.tgz`;
    const shim = compileShim(process.arch as "x64");
    const executables = { program: readFileSync(CNI_PROGRAM), shim, libraries: hostLibraries(CNI_PROGRAM) };
    writeFileSync(join(directory, archive), gzip(pluginArchive(executables, { LICENSE: "text" }, 1e9), 1));
    const install = commandsOf(readSection("README.md", "Install"));
    expect(install.join("\n")).toContain(` ${archive}\n`);
    const ownNetwork = readSection("README.md", "Your own network");
    const [, path, file] = /`([^`]+)`:\n\n```json\n(.+?)^```$/ms.exec(ownNetwork) ?? [];
    const printed = runOnNewHostIn(
      directory,
      ...install,
      ...commandsOf(readSection("README.md", "The first five minutes")),
      `cat > ${path} <<'END'\n${file}END`,
      // Not the file, which is indented as well.
      ...commandsOf(ownNetwork.replace(file!, "")),
    );
    expect(printed).toMatch(/^default .* eth0 +attached .* \/run\/netns\/web/m);
    expect(printed).toContain("No problem in 1 file\n");
    expect(printed).toContain('"address": "10.1.0.2/16"');
  } finally {
    rmSync(directory, { recursive: true });
  }
}, 60_000);

test("README's commands to build install what they built", () => {
  const [build, ...others] = commandsOf(readSection("README.md", "From source"));
  expect(build).toBe("npm ci && npm run build");
  // The tests run after a build; what it made is put in its place.
  expect(runOnNewHost(...others.slice(0, 1), "export PATH=$PATH:/opt/cni/bin")).toContain("/opt/cni/bin/bridge");
});

test("the complete network of docs/operations.md works when pasted", () => {
  const section = readSection("docs/operations.md", "A complete network");
  const file = /^```json\n(.+?)^```$/ms.exec(section)?.[1];
  const commands = [...section.matchAll(/`(cni run [^`]+)`/g)].map(([, command = ""]) => command.replaceAll("\n", " "));
  expect(commands).toEqual(["cni run status pods", "cni run add pods web -p 8080:80"]);
  const printed = runOnNewHost(
    "mkdir /opt/networks && export NETCONFPATH=/opt/networks",
    `cat > /opt/networks/10-pods.conflist <<'END'\n${file}END`,
    "dist/cni install --copy /opt/cni/bin && export PATH=$PATH:/opt/cni/bin",
    "cni netns add web",
    ...commands,
    "cni run check pods web && cni run list",
    "cni run del pods web && cni netns del web",
  );
  expect(printed).toMatch(/^pods .* eth0 +attached .* \/run\/netns\/web/m);
});

test("the complete removal of docs/operations.md leaves nothing", () => {
  const removal = commandsOf(readSection("docs/operations.md", "Complete removal"));
  expect(removal).toHaveLength(4);
  const printed = runOnNewHost(
    "dist/cni install --copy /opt/cni/bin >/dev/null && export PATH=$PATH:/opt/cni/bin",
    "cni network create web && cni netns add c1",
    "cni run add web c1 -p 8080:80 && cni run add default c1 --ifname eth1",
    "cni run del web c1 && cni run del default c1 --ifname eth1 && cni netns del c1",
    ...removal,
    "echo left: && find /etc /opt /var/lib /run -type f && ip -o link show | grep -v ': lo:' || :",
    "nft list ruleset",
    // In the end, attachments are listed, by a program that is gone.
    "cni() { :; } && echo end of files",
  );
  expect(printed.split("left:\n")[1]).toBe("end of files\n");
});

test("the backup of docs/operations.md brings the networks back", () => {
  const [backUp, ...restore] = commandsOf(readSection("docs/operations.md", "Backup"));
  const printed = runOnNewHost(
    "dist/cni install --copy /opt/cni/bin >/dev/null && export PATH=$PATH:/opt/cni/bin",
    "cni network create web && cd /run && cp /etc/cni/net.d/10-web.conflist before",
    backUp!,
    "cni network rm web",
    ...restore,
    "cmp before /etc/cni/net.d/10-web.conflist",
  );
  expect(printed).toContain("No problem in 1 file");
});
