/**
 * What engines' configurations say of directories: a comment in a network's file is an error where an engine reads the
 * file, and a note elsewhere; plugins have to be where it looks.
 *
 * @module
 */
import { expect, test } from "bun:test";
import { CNI_UNDER_TEST, finishedProcess, SERVER_ENV } from "../testing/binary.ts";

const COMMENTED = `{
  // for the shop
  "cniVersion": "1.0.0",
  "name": "web",
  "plugins": [{ "type": "loopback" }]
}`;
const UNREADABLE = "comments and trailing commas are no JSON: containerd and podman cannot read this file";

/** On a host with an empty /etc and /srv, and the file in a directory. */
function runWithComment(directory: string, ...commands: string[]) {
  const script = [
    ...["/etc", "/srv", "/run", "/var/lib"].map((place) => `mount -t tmpfs none ${place}`),
    `mkdir -p ${directory} && cat > ${directory}/10-web.conflist <<'END'\n${COMMENTED}\nEND`,
    ...commands,
  ];
  return finishedProcess(Bun.spawnSync(
    ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-ec", script.join("\n")],
    { env: { PATH: process.env["PATH"], ...SERVER_ENV }, stdin: "ignore", stdout: "pipe", stderr: "pipe" },
  ));
}

const lint = (directory: string, ...before: string[]) =>
  runWithComment(directory, ...before, `${CNI_UNDER_TEST} lint ${directory}`);

test("lint calls it an error in the directory of all engines", () => {
  const { exitCode, stdout } = lint("/etc/cni/net.d");
  expect(stdout).toStartWith(`/etc/cni/net.d/10-web.conflist:2:3 error ${UNREADABLE} [comments]\n`);
  expect(exitCode).toBe(1);
});

test("lint calls it a note elsewhere", () => {
  const { exitCode, stdout } = lint("/srv/nets");
  expect(stdout).toStartWith("/srv/nets/10-web.conflist:2:3 note comments and trailing commas are no JSON: only");
  expect(exitCode).toBe(0);
});

test.each([
  [
    "containerd 1",
    "/etc/containerd/config.toml",
    `[plugins."io.containerd.grpc.v1.cri".cni]\n  conf_dir = "/srv/nets"`,
  ],
  [
    "containerd 2",
    "/etc/containerd/config.toml",
    `[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/srv/nets/'`,
  ],
  ["podman", "/etc/containers/containers.conf", `[network]\nnetwork_config_dir = "/srv/nets"`],
  ["CRI-O", "/etc/crio/crio.conf", `[crio.network]\nnetwork_dir = "/srv/nets"`],
])("lint calls it an error in a directory that the configuration of %s names", (_, path, text) => {
  const { exitCode, stdout } = lint("/srv/nets", `mkdir -p $(dirname ${path})`, `cat > ${path} <<'END'\n${text}\nEND`);
  expect(stdout).toContain(`error ${UNREADABLE}`);
  expect(exitCode).toBe(1);
});

test("lint takes a setting in a comment, and a directory in place of a file, for no directory of an engine", () => {
  const { exitCode, stdout } = lint(
    "/srv/nets",
    "mkdir -p /etc/containerd /etc/containers/containers.conf",
    `echo '# conf_dir = "/srv/nets"' > /etc/containerd/config.toml`,
  );
  expect(stdout).toContain(" note ");
  expect(exitCode).toBe(0);
});

test("doctor says it", () => {
  const { exitCode, stdout } = runWithComment("/etc/cni/net.d", `${CNI_UNDER_TEST} doctor web`);
  expect(stdout).toContain(`✗ /etc/cni/net.d/10-web.conflist:2:3 ${UNREADABLE}\n    use a key such as "x-comment"\n`);
  expect(exitCode).toBe(1);
});

/** On a host with this configuration of containerd, and plugins in /opt/cni/bin. */
const doctorBeside = (containerd: string) =>
  runWithComment(
    "/etc/cni/net.d",
    "mount -t tmpfs none /opt; mkdir -p /opt/cni/bin /srv/plugins /etc/containerd; touch /opt/cni/bin/loopback",
    `cat > /etc/containerd/config.toml <<'END'\n${containerd}\nEND`,
    `${CNI_UNDER_TEST} doctor web || :`,
  ).stdout;

// Debian's package names another directory.
test.each([
  ["containerd 1", `bin_dir = "/srv/plugins"`],
  ["containerd 2", `bin_dirs = ["/srv/plugins", '/srv/others']`],
])("doctor names plugins that %s does not find", (_, setting) => {
  expect(doctorBeside(`[cni]\n${setting}`)).toMatch(
    /! \/etc\/containerd\/config.toml names \/srv\/plugins(, \/srv\/others)? for plugins, which has no "loopback"\n/,
  );
});

test.each([
  ["none is named", "# bin_dir = '/srv/plugins'"],
  ["one of several has them", `bin_dirs = ["/srv/plugins", "/opt/cni/bin"]`],
  ["it reads other networks", `bin_dir = "/srv/plugins"\nconf_dir = "/srv"`],
])("doctor names no directory of containerd if %s", (_, setting) => {
  expect(doctorBeside(setting)).not.toContain("for plugins");
});
