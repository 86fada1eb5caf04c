/** The Debian package of a release. @see deb(5) @module */
import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { COMMAND_NAME, FULL_PROGRAM_NAME, LIBRARY_DIRECTORY_NAME } from "../../../program/installed_file.ts";
import { pluginNames } from "../../../plugins/registry.ts";
import { runSuccessfully } from "../harness/process.ts";
import { newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import { type Executables, gzip, type TextFiles } from "./plugin_archive.ts";
import { type TarEntry, withParents, writeTree } from "./tar.ts";

export interface DebianRelease {
  readonly version: string;
  /** `amd64` */
  readonly architecture: string;
  /** `A B <a@example.org>` */
  readonly maintainer: string;
  readonly time: number;
}

/** What the program prints to be installed: a text for each path below /usr/share. */
export type Documentation = TextFiles;

const BIN = "usr/lib/cni";
const UNIT_DIRECTORY = "lib/systemd/system";
const UNITS = ["cni.socket", "cni.service", "cni-restore@.service"];
/** Their restart removes rules of ours. */
const FIREWALLS = ["nftables", "firewalld"];
const SCRIPTS = ["preinst", "postinst", "prerm", "postrm"];
const DESCRIPTION = `runtime and plugins of CNI in one program
 CNI (Container Network Interface) is how container engines connect the
 containers that they run. This is a runtime for people and scripts, and all
 plugins that engines call, in one program. It takes the place of the plugins
 of containernetworking-plugins while it is installed.`;

const packaging = (name: string): string => readFileSync(join(REPOSITORY_ROOT, "packaging/debian", name), "utf8");

/** @param isCompressed not for tests, which would take long */
export function debianPackage(
  release: DebianRelease,
  executables: Executables,
  texts: TextFiles,
  documentation: Documentation,
  isCompressed = true,
): Buffer {
  const files = packageFiles(release, executables, texts, documentation);
  const control = controlFiles(release, files).map((file) => ({ ...file, path: `DEBIAN/${file.path}` }));
  using scratch = newScratchDirectory();
  const [tree, file] = [join(scratch.path, "tree"), join(scratch.path, "deb")];
  writeTree([{ path: ".", isDirectory: true }, ...withParents([...files, ...control])], tree);
  // With more threads, the bytes would be others.
  const options = ["--root-owner-group", "--threads-max=1", isCompressed ? "-Zxz" : "-Znone"];
  // The time of all files: they are newer.
  const env = { SOURCE_DATE_EPOCH: `${release.time}` };
  runSuccessfully({ argv: ["dpkg-deb", ...options, "--build", tree, file], env });
  return readFileSync(file);
}

function packageFiles(
  release: DebianRelease,
  { program, shim, libraries }: Executables,
  texts: TextFiles,
  documentation: Documentation,
): readonly TarEntry[] {
  const text = (path: string, data: string | Uint8Array): TarEntry => ({ path, mode: 0o644, data: Buffer.from(data) });
  const link = (path: string, symlink: string): TarEntry => ({ path, mode: 0o777, symlink });
  const compressed = (path: string, data: string) => text(`${path}.gz`, gzip(Buffer.from(data)));
  const isCompressed = (path: string) => path.startsWith("man/");
  // dpkg replaces one file after the other, links last. With files of two versions, no call would find what fits together.
  const libraryDirectory = `${BIN}/${LIBRARY_DIRECTORY_NAME}-${release.version}`;
  return [
    { path: `${BIN}/${FULL_PROGRAM_NAME}`, data: program },
    { path: `${BIN}/${COMMAND_NAME}`, data: shim },
    ...libraries.map((file) => ({ ...file, path: `${libraryDirectory}/${basename(file.path)}` })),
    link(`${BIN}/${LIBRARY_DIRECTORY_NAME}`, basename(libraryDirectory)),
    ...pluginNames().map((name) => link(`${BIN}/${name}`, COMMAND_NAME)),
    link(`usr/sbin/${COMMAND_NAME}`, `../lib/cni/${COMMAND_NAME}`),
    ...UNITS.map((name) => text(`${UNIT_DIRECTORY}/${name}`, packaging(name))),
    ...FIREWALLS.map((name) =>
      link(`${UNIT_DIRECTORY}/${name}.service.wants/cni-restore@${name}.service`, "../cni-restore@.service")
    ),
    ...Object.entries(documentation).map(([path, data]) =>
      isCompressed(path) ? compressed(`usr/share/${path}`, data) : text(`usr/share/${path}`, data)
    ),
    text("usr/share/doc/cni/copyright", packaging("copyright")),
    text("usr/share/doc/cni/LICENSE.third-party", texts["LICENSE.third-party"] ?? ""),
    compressed("usr/share/doc/cni/changelog", debianChangelog(release)),
    text("usr/share/lintian/overrides/cni", packaging("lintian-overrides")),
  ];
}

function controlFiles(
  { version, architecture, maintainer }: DebianRelease,
  files: readonly TarEntry[],
): readonly TarEntry[] {
  const data = files.flatMap((file) => "data" in file ? [file] : []);
  const md5 = (bytes: Uint8Array) => new Bun.CryptoHasher("md5").update(bytes).digest("hex");
  const size = data.reduce((sum, file) => sum + Math.ceil(file.data.length / 1024), files.length - data.length);
  const control = [
    "Package: cni",
    `Version: ${version}`,
    `Architecture: ${architecture}`,
    `Maintainer: ${maintainer}`,
    `Installed-Size: ${size}`,
    "Depends: init-system-helpers (>= 1.54~)",
    "Suggests: containerd | podman | cri-o",
    "Section: net",
    "Priority: optional",
    `Description: ${DESCRIPTION}\n`,
  ].join("\n");
  return [
    { path: "control", mode: 0o644, data: Buffer.from(control) },
    {
      path: "md5sums",
      mode: 0o644,
      data: Buffer.from(data.map((file) => `${md5(file.data)}  ${file.path}\n`).sort().join("")),
    },
    ...SCRIPTS.map((path) => ({
      path,
      data: Buffer.from(packaging(path).replaceAll("@PLUGINS@", pluginNames().join(" "))),
    })),
  ];
}

/** The section of CHANGELOG.md on this version, in Debian's form. */
function debianChangelog({ version, maintainer, time }: DebianRelease): string {
  const changes = readFileSync(join(REPOSITORY_ROOT, "CHANGELOG.md"), "utf8");
  const section = changes.split(/^## /m).find((part) => part.startsWith(`${version},`)) ?? "";
  const items = section.split(/^- /m).slice(1).map((item) => {
    const lines = item.replace(/\s+/g, " ").trim().match(/.{1,74}(?= |$)/g) ?? [];
    return `  * ${lines.map((line) => line.trim()).join("\n    ")}`;
  });
  const date = new Date(time * 1000).toUTCString().replace("GMT", "+0000");
  return [`cni (${version}) unstable; urgency=medium`, "", ...items, "", ` -- ${maintainer}  ${date}`, ""].join("\n");
}
