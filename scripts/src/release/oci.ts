/** An OCI image layout with an image for each processor. @see the image specification of the Open Container Initiative, image-layout.md @module */
import { gzip } from "./plugin_archive.ts";

export interface Image {
  /** `amd64` */
  readonly architecture: string;
  /** Archives of tar, the lowest first. */
  readonly layers: readonly Uint8Array[];
  readonly time: number;
  /** How engines run it, as the `config` of OCI has it. */
  readonly settings: object;
  readonly labels: Readonly<Record<string, string>>;
}

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
  readonly platform?: { readonly architecture: string; readonly os: string };
  readonly annotations?: Readonly<Record<string, string>>;
}

type Files = readonly (readonly [path: string, data: Buffer])[];

const MEDIA_TYPE = "application/vnd.oci.image";

/** @param tag by which tools choose the index @param level of compression @returns files by path */
export function ociLayout(images: readonly Image[], name: string, tag: string, level: number): Files {
  const blobs = new Map<string, Buffer>();
  const add = (type: string, data: Uint8Array): Descriptor => {
    const hash = sha256(data);
    blobs.set(`blobs/sha256/${hash}`, Buffer.from(data));
    return { mediaType: `${MEDIA_TYPE}.${type}`, digest: `sha256:${hash}`, size: data.length };
  };
  const addJson = (type: string, value: object): Descriptor => add(type, Buffer.from(JSON.stringify(value)));
  const manifests = images.map((image): Descriptor => {
    const { architecture, layers, labels } = image;
    const manifest = {
      schemaVersion: 2,
      mediaType: `${MEDIA_TYPE}.manifest.v1+json`,
      config: addJson("config.v1+json", configOf(image)),
      layers: layers.map((layer) => add("layer.v1.tar+gzip", gzip(layer, level))),
      annotations: labels,
    };
    return { ...addJson("manifest.v1+json", manifest), platform: { architecture, os: "linux" } };
  });
  const index = addJson("index.v1+json", indexOf(manifests));
  // By the second, podman, Docker and containerd name what they load; by the tag alone, podman would name it "v0.1.0:latest".
  const annotations = {
    "org.opencontainers.image.ref.name": tag,
    "io.containerd.image.name": `${name}:${tag}`,
  };
  const entry = { ...index, annotations };
  return [
    ["oci-layout", Buffer.from('{"imageLayoutVersion":"1.0.0"}')],
    ["index.json", Buffer.from(JSON.stringify(indexOf([entry])))],
    ...[...blobs].sort(([a], [b]) => a < b ? -1 : 1),
  ];
}

const indexOf = (manifests: readonly Descriptor[]): object => ({
  schemaVersion: 2,
  mediaType: `${MEDIA_TYPE}.index.v1+json`,
  manifests,
});

function configOf({ architecture, layers, time, settings, labels }: Image): object {
  const created = new Date(time * 1000).toISOString();
  return {
    created,
    architecture,
    os: "linux",
    config: { ...settings, Labels: labels },
    rootfs: { type: "layers", diff_ids: layers.map((layer) => `sha256:${sha256(layer)}`) },
    history: layers.map(() => ({ created })),
  };
}

const sha256 = (data: Uint8Array): string => new Bun.CryptoHasher("sha256").update(data).digest("hex");
