# prompt.sh - the system prompt (CONTRACT §10): sections in a fixed order, the same bytes as the binary's.

# An instruction file, plan or summary is shown up to this many bytes.
MAX_SHOWN=100000

setup_prompt() {
  PLATFORM=$(uname -s)
  TOOLS_FILE=$ASSETS_DIR/tools.json
  awk_value TOOLS_V "$TOOLS_FILE"
  find_skills
  check_skills
}

# ---- Skills: the files of the places, in their order, that may be read.

find_skills() {
  local root place file
  SKILL_FILES=()
  for root in "$CWD" "${HOME:-}"; do
    [[ -n $root ]] || continue
    [[ $root == "$CWD" && ${#SKILL_FILES[@]} -gt 0 && -n ${SKILLS_SEEN:-} ]] && continue
    for place in "$root/.claude/skills" "$root/skills"; do
      for file in "$place"/*/SKILL.md; do
        [[ -f $file && -r $file ]] || continue
        is_skill_allowed "$file" && SKILL_FILES[${#SKILL_FILES[@]}]=$file
      done
    done
  done
}

# A link in somebody's repository must not put a key into the prompt.
is_skill_allowed() { # <file>
  local real
  resolve_path real "$1"
  is_sensitive "$real" && return 1
  [[ $real == /etc/* || $real == /proc/* ]] && return 1
  return 0
}

skill_file() { # <result-var> <name>   of equal names the first wins
  local sf_file sf_name
  for sf_file in "${SKILL_FILES[@]+"${SKILL_FILES[@]}"}"; do
    sf_name=${sf_file%/SKILL.md}
    if [[ ${sf_name##*/} == "$2" ]]; then
      printf -v "$1" '%s' "$sf_file"
      return 0
    fi
  done
  return 1
}

load_skill() { # <name>   its text on stdout; fails when there is none
  local file dir
  skill_file file "$1" || return 1
  awk_value dir "${file%/SKILL.md}"
  head -c 1048576 -- "$file" >"$WORK/skill" || return 1
  run_awk skills.awk -v body=1 -v as="$dir" "$WORK/skill"
}

# A skill asked for on the command line must be there.
check_skills() {
  local name file known
  for name in "${SKILLS[@]+"${SKILLS[@]}"}"; do
    skill_file file "$name" && continue
    ((${#SKILL_FILES[@]})) || die 2 "no skill '$name': there are none in .claude/skills or skills"
    known=$(run_awk skills.awk -v list=1 "${SKILL_FILES[@]}" | cut -f 1)
    die 2 "no skill '$name': there are ${known//$'\n'/, }"
  done
}

# ---- Sections

# Appends `<tag>\n…\n</tag>` to PROMPT, unless the text is empty.
section() { # <tag> <attributes> <text>
  local text=$3
  while [[ $text == *[$'\n\r'] ]]; do text=${text%?}; done
  [[ $text == *[![:space:]]* ]] || return 0
  PROMPT=$PROMPT${PROMPT:+$'\n'}"<$1$2>"$'\n'$text$'\n'"</$1>"
}

asset() { # <result-var> <name>
  read_file "$1" "$ASSETS_DIR/prompt/$2.md"
}

# A text file as it may stand in the prompt, without its last line feeds; empty when it cannot be read.
shown_file() { # <result-var> <file>
  local sh_text='' sh_max=0
  if [[ -s $2 && -f $2 ]]; then
    if [[ -r $2 ]]; then
      (($(wc -c <"$2") > MAX_SHOWN)) && sh_max=$MAX_SHOWN
      sh_text=$(head -c $((MAX_SHOWN + 1)) -- "$2" | tr '\000' '\377' | run_awk harmless.awk -v max="$sh_max" 2>"$RUN/harmless.err")
      [[ -s $RUN/harmless.err ]] && say_once "$2: longer than $MAX_SHOWN bytes; the model sees the first $(cat "$RUN/harmless.err")"
    else
      say_once "$2: Permission denied; left out of the prompt"
    fi
  fi
  printf -v "$1" '%s' "$sh_text"
}

instruction_files() { # <result-var>
  local if_out='' if_text if_name if_dir if_file
  for if_name in global project; do
    if_dir=$BASE
    [[ $if_name == project ]] && if_dir=$CWD
    for if_file in AGENTS.md AGENT.md CLAUDE.md .claude/CLAUDE.md; do
      [[ -f $if_dir/$if_file ]] || continue
      shown_file if_text "$if_dir/$if_file"
      [[ -n $if_text ]] && if_out=$if_out${if_out:+$'\n'}"<instruction-file name=\"$if_name\">"$'\n'$if_text$'\n'"</instruction-file>"
      break
    done
  done
  printf -v "$1" '%s' "$if_out"
}

selected_skills() { # <result-var>
  local se_out='' se_name se_text
  for se_name in "${SKILLS[@]+"${SKILLS[@]}"}"; do
    if load_skill "$se_name" >"$RUN/skill.text"; then
      se_text=$(run_awk harmless.awk <"$RUN/skill.text")
      se_out=$se_out${se_out:+$'\n'}"<skill name=\"$se_name\">"$'\n'$se_text$'\n'"</skill>"
    else
      say_once "skill $se_name is gone; left out of the prompt"
    fi
  done
  printf -v "$1" '%s' "$se_out"
}

language_name() { # <result-var>   the locale's language, else the locale itself
  local ln_code=${LANG_NAME%%@*} ln_key ln_line ln_found=''
  for ln_key in "$ln_code" "${ln_code%%_*}"; do
    while IFS= read -r ln_line; do
      if [[ ${ln_line%%$'\t'*} == "$ln_key" ]]; then
        ln_found=${ln_line#*$'\t'}
        break 2
      fi
    done <"$ASSETS_DIR/languages.tsv"
  done
  printf -v "$1" '%s' "${ln_found:-$LANG_NAME}"
}

system_prompt() { # on stdout
  local text note
  PROMPT=
  asset text agent-identity && section agent-identity '' "$text"
  section environment '' "lang: $LANG_NAME"$'\n'"pwd: $CWD"$'\n'"home: ${HOME:-}"$'\n'"platform: $PLATFORM"$'\n'"shell: $SHELL_NAME"
  asset text rules && section rules '' "$text"
  asset text using-your-tools && section using-your-tools '' "$text"
  asset text sub-agent-guidance && section sub-agent-guidance '' "$text"
  asset text todo-guidance && section todo-guidance '' "$text"
  asset text plan-lifecycle-guidance
  text=${text//'{{plan_draft}}'/"$S/plan.draft"}
  section plan-lifecycle-guidance '' "${text//'{{plan}}'/"$S/plan.md"}"
  instruction_files text && section instruction-files '' "$text"
  text=
  if ((${#SKILL_FILES[@]})); then
    : >"$RUN/skills.notes"
    text=$(run_awk skills.awk -v notes="$RUN_V/skills.notes" "${SKILL_FILES[@]}" | run_awk harmless.awk)
    while IFS= read -r note; do say_once "$note"; done <"$RUN/skills.notes"
  fi
  section skill-index '' "$text"
  selected_skills text && section selected-skills '' "$text"
  shown_file text "$S/plan.md" && section current-plan " name=\"$S/plan.md\"" "$text"
  shown_file text "$S/summary.txt" && section context-snapshot '' "$text"
  language_name text
  PROMPT_LANGUAGE=$text
  asset text output-language
  section output-language '' "${text//'{{language}}'/"$PROMPT_LANGUAGE"}"
  printf '%s' "$PROMPT"
}
