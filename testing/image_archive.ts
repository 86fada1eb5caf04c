/** Images of containers as `docker save` writes them. @module */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

interface ImageSource {
  /** The directory of its files. */
  readonly root: string;
  /** With their tags; engines load it by each. */
  readonly names: readonly string[];
  /** How engines run it, as the `config` of OCI has it. */
  readonly settings: object;
}

/** Writes an image with one layer to `archive`. @param run throws if the program fails, and gives its output */
export function writeImageArchive(
  archive: string,
  { root, names, settings }: ImageSource,
  run: (...command: string[]) => string,
): void {
  const directory = `${archive}.parts`;
  mkdirSync(directory);
  run("tar", "-C", root, "-cf", join(directory, "layer.tar"), ".");
  const layer = run("sha256sum", join(directory, "layer.tar")).slice(0, 64);
  const config = {
    architecture: process.arch === "arm64" ? "arm64" : "amd64",
    os: "linux",
    config: settings,
    rootfs: { type: "layers", diff_ids: [`sha256:${layer}`] },
  };
  const manifest = [{ Config: "config.json", RepoTags: names, Layers: ["layer.tar"] }];
  writeFileSync(join(directory, "config.json"), JSON.stringify(config));
  writeFileSync(join(directory, "manifest.json"), JSON.stringify(manifest));
  run("tar", "-C", directory, "-cf", archive, "manifest.json", "config.json", "layer.tar");
  rmSync(directory, { recursive: true });
}
