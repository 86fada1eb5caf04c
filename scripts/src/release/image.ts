/** The container image of a release: nothing but the program, its links, and the files of glibc that it is linked with. @module */
import { COMMAND_NAME } from "../../../program/installed_file.ts";
import { pluginNames } from "../../../plugins/registry.ts";
import type { Processor } from "../build/runtime_patch.ts";
import { type Image, ociLayout } from "./oci.ts";
import type { TextFiles } from "./plugin_archive.ts";
import type { ReleaseSource } from "./source.ts";
import { tar, type TarEntry, withParents } from "./tar.ts";

/** The names that other projects give to processors. */
export const ARCHITECTURES: Readonly<Record<Processor, string>> = { x64: "amd64", arm64: "arm64" };

/** Where it is loaded; a registry gives it another. */
const IMAGE_NAME = "localhost/cni";
const BIN = "opt/cni/bin";
/** Engines mount these, or what is in them. */
const MOUNT_POINTS = ["proc", "sys", "dev", "etc/cni/net.d", "run/netns", "var/lib/cni", BIN];

type ImageSource = Omit<ReleaseSource, "maintainer">;

export interface ImageParts {
  readonly processor: Processor;
  readonly program: Uint8Array;
  /** The files of glibc that the program is linked with. */
  readonly libraries: readonly TarEntry[];
}

/** The entries of an OCI layout in a tar archive, which `podman load` and the like read. */
export function imageArchive(parts: readonly ImageParts[], texts: TextFiles, source: ImageSource, level = 9): Buffer {
  const images = parts.map((part) => releaseImage(part, texts, source));
  const files = ociLayout(images, IMAGE_NAME, `v${source.version}`, level);
  const folders = ["blobs", "blobs/sha256"].map((path) => ({ path, isDirectory: true }) as const);
  return tar([...folders, ...files.map(([path, data]) => ({ path, mode: 0o644, data }))], source.time);
}

/** Two layers: the first is the same in each release with the same glibc. */
function releaseImage({ processor, program, libraries }: ImageParts, texts: TextFiles, source: ImageSource): Image {
  const base = withParents([
    ...libraries.map((file) => ({ ...file, path: `${BIN}/${file.path}` })),
    ...MOUNT_POINTS.map((path) => ({ path, isDirectory: true }) as const),
  ]);
  const own: TarEntry[] = [
    { path: `${BIN}/${COMMAND_NAME}`, data: program },
    ...pluginNames().map((name) => ({ path: `${BIN}/${name}`, mode: 0o777, symlink: COMMAND_NAME })),
    ...Object.entries(texts).map(([name, text]) => ({
      path: `usr/share/doc/cni/${name}`,
      mode: 0o644,
      data: Buffer.from(text),
    })),
  ];
  const known = new Set(base.map(({ path }) => path));
  // The layer's own folders only: one that is in both would be another one.
  const layer = withParents(own).filter(({ path }) => !known.has(path));
  return {
    architecture: ARCHITECTURES[processor],
    // A time of its own would make the first layer another one in each release.
    layers: [tar(base, 0), tar(layer, source.time)],
    time: source.time,
    settings: { Env: [`PATH=/${BIN}`], Entrypoint: [`/${BIN}/${COMMAND_NAME}`], Cmd: ["--help"], WorkingDir: "/" },
    labels: {
      "org.opencontainers.image.title": "cni",
      "org.opencontainers.image.description": "The CNI runtime and its plugins, in one program",
      "org.opencontainers.image.licenses": "Apache-2.0",
      "org.opencontainers.image.version": source.version,
      ...source.commit !== undefined && { "org.opencontainers.image.revision": source.commit },
    },
  };
}
