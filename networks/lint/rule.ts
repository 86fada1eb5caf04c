import type { SourceText } from "../../spec/source_text.ts";
import type { EarlierFiles } from "./earlier_files.ts";
import type { LintFile } from "./lint_file.ts";

/** `error`: an ADD fails. `warning`: probably a mistake. `note`: good to know; it never changes the exit status. */
export type Severity = "error" | "warning" | "note";

export interface LintFinding {
  readonly source: SourceText;
  /** The place in the document: `plugins[0].mtu`. */
  readonly path: string;
  /** Where the position is; default: the value. */
  readonly part?: "key" | "value";
  /** Replaces the position of `path`, where there is no document. */
  readonly offset?: number;
  readonly message: string;
  readonly suggestion?: string | undefined;
  /** If it differs from the rule's. */
  readonly severity?: Severity;
}

export interface LintContext {
  readonly pluginDirectories: readonly string[];
  readonly earlier: EarlierFiles;
}

export interface LintExample {
  readonly files: Readonly<Record<string, string>>;
  /** Arguments of ip(8) that make the host of the example. */
  readonly host?: readonly string[];
}

export interface LintRule {
  /** `duplicate-key` */
  readonly name: string;
  readonly severity: Severity;
  /** Sentences for the docs, in Markdown. */
  readonly about: string;
  /** This rule alone finds exactly `finds`: `web.conflist:3:5 MESSAGE`. */
  readonly bad: LintExample & { readonly finds: readonly string[] };
  readonly good: LintExample;
  find(file: LintFile, context: LintContext): readonly LintFinding[];
}

export const isError = ({ severity }: { readonly severity: Severity }): boolean => severity === "error";
