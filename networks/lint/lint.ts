/** Finds problems of configurations without running a plugin or changing anything. @module */
import { findEntryNames } from "../../ffi/sys/directory.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { CniError, Code } from "../../spec/error.ts";
import { suggestion } from "../../spec/suggest.ts";
import { listConfFiles } from "../../runtime/load.ts";
import { needsRanges } from "./given_ranges.ts";
import { EarlierFiles } from "./earlier_files.ts";
import { disabledRules } from "./disable_comment.ts";
import { attempt } from "./attempt.ts";
import { type LintFile, lintFileOf, readLintFile, STANDARD_INPUT } from "./lint_file.ts";
import type { LintContext, LintFinding, LintRule, Severity } from "./rule.ts";
import { LINT_RULES } from "./rules.ts";

/** What is wrong, and where. */
export interface LintProblem {
  /** The path of the network's file. */
  readonly file: string;
  /** The number of the line, from 1. */
  readonly line: number;
  /** The first character in the line, from 1. */
  readonly column: number;
  /** How many characters of this line. */
  readonly length: number;
  /** Errors stop an ADD, or make it wrong. */
  readonly severity: Severity;
  /** `unknown-key` */
  readonly rule: string;
  /** In the document: `plugins[0].mtu`; empty for the whole text. */
  readonly path: string;
  /** One sentence without a full stop. */
  readonly message: string;
  /** What to write instead, or to do. */
  readonly suggestion?: string;
  /** The line of the text. */
  readonly text: string;
}

/** What was found in the files of networks. */
export interface LintReport {
  /** The files, in the order in which they are loaded. */
  readonly files: readonly string[];
  /** By file, line and column. */
  readonly problems: readonly LintProblem[];
}

interface LintOptions {
  readonly pluginDirectories: readonly string[];
  /** Names of rules that find nothing. */
  readonly disabled?: readonly string[];
  /** Each node of a cluster writes ranges where there are none. */
  readonly givesRanges?: boolean;
}

export const lintRuleNames = (): string[] => LINT_RULES.map(({ name }) => name);

/**
 * Checks files, also against each other and against the routes of this thread's namespace.
 *
 * `loadPlugins()` and `loadPluginDocs()` come first.
 *
 * @param paths files, directories of networks, and `-` for standard input
 * @throws {CniError} code 7 if there is no such file or directory
 * @throws {SystemError} if a directory cannot be read
 */
export function lintFiles(paths: readonly string[], options: LintOptions): LintReport {
  const files = [...new Set(paths.flatMap(confFilesAt))].map((path) =>
    readLintFile(path, options.pluginDirectories, paths.includes(path))
  );
  return { files: files.map(({ source }) => source.path), problems: findProblems(files, options) };
}

/** Checks a file that is not there yet, otherwise as {@linkcode lintFiles}. @param path as it would be named */
export const lintText = (path: string, text: string, options: LintOptions): readonly LintProblem[] =>
  findProblems([lintFileOf(path, text, options.pluginDirectories)], options);

function findProblems(
  files: readonly LintFile[],
  { pluginDirectories, disabled = [], givesRanges = false }: LintOptions,
): readonly LintProblem[] {
  const earlier = new EarlierFiles();
  const context: LintContext = { pluginDirectories, earlier };
  return files.flatMap((file) => {
    const off = new Set([...disabled, ...disabledRules(file.source).map(({ rule }) => rule)]);
    const found = LINT_RULES.flatMap((rule) => rule.find(file, context).map((finding) => toProblem(finding, rule)));
    earlier.add(file);
    const given = new Set(givesRanges ? file.plugins.filter(needsRanges).map(({ path }) => `${path}.ipam.ranges`) : []);
    return withoutRepetition(found).filter(({ rule, path }) => !off.has(rule) && !given.has(path)).sort(byPosition);
  });
}

function confFilesAt(path: string): string[] {
  if (path === "-") return [STANDARD_INPUT];
  const status = findStat(path);
  if (status?.isDirectory) return listConfFiles(path).filter((file) => !isDirectory(file));
  if (status) return [path];
  const [, directory = "", name = ""] = /^(.*?)([^/]*)$/.exec(path) ?? [];
  const hint = suggestion(name, findEntryNames(directory || ".") ?? []);
  throw new CniError(Code.InvalidConfig, `Cannot find "${path}": there is no such file or directory${hint}`, {
    details: "expected the path of a network's file, or of a directory of such files",
  });
}

/** Of links to nowhere and to themselves, reading tells what is wrong. */
const isDirectory = (path: string): boolean => attempt(() => findStat(path)?.isDirectory) === true;

function toProblem(finding: LintFinding, rule: LintRule): LintProblem {
  const { source, path, part = "value", offset, message, severity = rule.severity } = finding;
  const span = offset === undefined ? source.span(path, part) : source.spanAt(offset);
  return {
    file: source.path,
    ...span,
    severity,
    rule: rule.name,
    path,
    message,
    ...finding.suggestion !== undefined && { suggestion: finding.suggestion },
    text: source.lineText(span.line),
  };
}

/** Other rules say better what is wrong with a value. */
function withoutRepetition(problems: readonly LintProblem[]): LintProblem[] {
  const isWithin = (inner: string, path: string) => inner === path || /^[.[]/.test(inner.slice(path.length));
  return problems.filter(({ rule, path }) =>
    rule !== "invalid-value" || path === "" ||
    !problems.some((other) =>
      other.rule !== rule && other.severity === "error" && other.path.startsWith(path) && isWithin(other.path, path)
    )
  );
}

function byPosition(a: LintProblem, b: LintProblem): number {
  return a.file === b.file ? a.line - b.line || a.column - b.column : a.file < b.file ? -1 : 1;
}
