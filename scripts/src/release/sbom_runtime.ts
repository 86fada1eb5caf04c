/** Bun and its parts for the list of materials: as its licence page and `process.versions` declare them. @module */
import { pinnedIntegrity, RUNTIME_PACKAGES } from "../build/runtime_package.ts";
import { PATCHED_RUNTIME } from "../build/runtime_patch.ts";

/** A component of CycloneDX, with the keys that are used here. */
export interface Component {
  readonly type: "application" | "library" | "platform";
  readonly "bom-ref": string;
  readonly group?: string;
  readonly name: string;
  readonly version?: string;
  readonly description?: string;
  readonly purl?: string;
  readonly licenses?: readonly { readonly license: { readonly id: string } | { readonly name: string } }[];
  readonly hashes?: readonly { readonly alg: string; readonly content: string }[];
  readonly externalReferences?: readonly { readonly type: string; readonly url: string }[];
  readonly components?: readonly Component[];
  readonly evidence?: object;
}

/** Entries of process.versions that are no parts: interfaces that Bun imitates, itself, and what is for another system. */
const NO_PARTS = ["bun", "modules", "napi", "node", "openssl", "unicode", "uv", "v8", "zig"];
/** Names of process.versions for parts that the page calls otherwise. */
const VERSION_NAMES: Readonly<Record<string, string>> = {
  "c-ares": "ares",
  JavaScriptCore: "webkit",
  libicu: "icu",
  "lol-html": "lolhtml",
  "ls-hpack": "lshpack",
  picohttp: "picohttpparser",
  uSockets: "usockets",
  uWebsockets: "uwebsockets",
  "zlib-ng": "zlib",
};
/** Identifiers of SPDX, where the page means exactly one. */
const SPDX: Readonly<Record<string, string>> = {
  MIT: "MIT",
  "MIT licensed": "MIT",
  "Apache 2.0": "Apache-2.0",
  "Apache 2.0 licensed": "Apache-2.0",
  "BSD 2-Clause": "BSD-2-Clause",
  "BSD 3-Clause": "BSD-3-Clause",
  zlib: "Zlib",
};
/** A row of a table: the name as a link, and the licence. */
const ROW = /^\|[^|\n]*?\[`([^`|\n]+)`\]\(([^)|\n]+)\)([^|\n]*)\|([^|\n]+)\|$/gm;

type Versions = Readonly<Record<string, string | undefined>>;

/** @param page of licences, in Markdown @throws {Error} if it says nothing of the engine, or has no table */
export function runtimeComponents(page: string, versions: Versions): readonly Component[] {
  if (!/^Bun itself is MIT-licensed\.$/m.test(page) || !/statically links JavaScriptCore[^.]*LGPL-2/.test(page)) {
    throw new Error("Cannot list the parts of Bun: its licence page has another form");
  }
  const rows = [...page.matchAll(ROW)].flatMap(([, name = "", url = "", note = "", licence = ""]) =>
    note.includes("(on Windows)") ? [] : [part(name, versions, plainText(licence), url)]
  );
  if (rows.length < 20) throw new Error(`Cannot list the parts of Bun: its licence page has only ${rows.length}`);
  const named = ["JavaScriptCore", ...rows.map(({ name }) => name)].map((name) => VERSION_NAMES[name] ?? name);
  const others = Object.keys(versions).filter((name) => ![...NO_PARTS, ...named].includes(name));
  const engine = part("JavaScriptCore", versions, "LGPL-2", "https://github.com/oven-sh/webkit");
  const parts = [engine, ...rows, ...others.map((name) => part(name, versions))];
  return [{
    type: "platform",
    "bom-ref": `bun@${PATCHED_RUNTIME}`,
    name: "bun",
    version: PATCHED_RUNTIME,
    purl: `pkg:npm/bun@${PATCHED_RUNTIME}`,
    licenses: [{ license: { id: "MIT" } }],
    externalReferences: [{ type: "website", url: "https://bun.com" }],
    components: [...Object.values(RUNTIME_PACKAGES).map(runtimePackage), ...parts.sort(byReference)],
  }];
}

const byReference = (a: Component, b: Component): number => a["bom-ref"] < b["bom-ref"] ? -1 : 1;

/** The package whose executable the program is made of, for one processor. */
function runtimePackage(name: string): Component {
  const sha512 = Buffer.from(pinnedIntegrity(name).replace("sha512-", ""), "base64").toString("hex");
  const purl = `pkg:npm/${name.replace("@", "%40")}@${PATCHED_RUNTIME}`;
  return {
    type: "platform",
    "bom-ref": purl,
    name,
    version: PATCHED_RUNTIME,
    purl,
    licenses: [{ license: { id: "MIT" } }],
    hashes: [{ alg: "SHA-512", content: sha512 }],
  };
}

function part(name: string, versions: Versions, licence?: string, url?: string): Component {
  const version = versions[VERSION_NAMES[name] ?? name];
  const spdx = licence && SPDX[licence];
  return {
    type: "library",
    "bom-ref": `bun@${PATCHED_RUNTIME}|${name}`,
    name,
    ...version !== undefined && { version },
    ...licence !== undefined && { licenses: [{ license: spdx ? { id: spdx } : { name: licence } }] },
    ...url !== undefined && { externalReferences: [{ type: "website", url }] },
  };
}

const plainText = (markdown: string): string =>
  markdown.replace(/\[([^\]]+)\]\(([^)]+)\)/g, "$1 ($2)").replaceAll("`", "").trim();
