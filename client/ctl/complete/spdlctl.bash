# SPDX-License-Identifier: Apache-2.0
# Completion of spdlctl for bash. In ~/.bashrc:
#   source <(spdlctl completion bash)
# 'spdlctl __complete WORD...' prints what the last word may become: a line for each candidate, which
# is its word, a tab and what it means, and a last one that begins with ':' and says what else there is.

__spdlctl_complete() {
  # Bash takes words apart at '=' and ':', too; what has no blank in between is one word.
  local line=${COMP_LINE:0:COMP_POINT} rest i words=()
  for ((i = 0; i <= COMP_CWORD; i++)); do
    rest=${line#"${line%%[![:space:]]*}"}
    local piece=${COMP_WORDS[i]}
    ((i < COMP_CWORD)) || piece=$rest # up to the cursor
    if ((i == 0)) || [[ $rest != "$line" ]]; then
      words+=("$piece")
    else
      words[${#words[@]} - 1]+=$piece
    fi
    line=${rest#"$piece"}
  done

  local program=${words[0]/#\~/$HOME} word=${words[${#words[@]} - 1]} answer=()
  mapfile -t answer < <("$program" __complete "${words[@]:1}" 2>/dev/null)
  COMPREPLY=()
  ((${#answer[@]} > 0)) || return 0
  local also=${answer[${#answer[@]} - 1]}
  unset "answer[${#answer[@]} - 1]"

  # Readline replaces what stands behind the last of these only.
  local breaks kept='' upto
  for breaks in '=' ':' '@'; do
    if [[ $COMP_WORDBREAKS == *"$breaks"* && $word == *"$breaks"* ]]; then
      upto=${word%"${word##*"$breaks"}"}
      ((${#upto} <= ${#kept})) || kept=$upto
    fi
  done
  local candidate
  for candidate in "${answer[@]}"; do
    candidate=${candidate%%$'\t'*}
    COMPREPLY+=("${candidate#"$kept"}")
  done
  case $also in
    *nospace*) compopt -o nospace ;;
    *files*)
      if ((${#COMPREPLY[@]} == 0)); then
        compopt -o default # bash's own completion of files, which knows ~ and quotes
      else
        compopt -o filenames
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "${word#"$kept"}")
      fi
      ;;
    *directories*) compopt -o dirnames ;;
  esac
}

complete -F __spdlctl_complete spdlctl
