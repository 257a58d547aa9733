# shellcheck shell=bash
# What kubectl sees of every kind: the list of resources, the samples of tests/samples, and what is explained
# of each. To be sourced by kubectl.sh, whose functions it uses.

# Lines of `api-resources -o wide` in one form, whatever the version of kubectl: single spaces, and the verbs
# with commas between.
resource_lines() { sed -E ':x; s/(\[[^] ]*) /\1,/; tx; s/[][]//g; s/ +/ /g; s/ $//' | sort; }

list_resources() {
  step "api-resources: names, short names, versions, scope, kinds, verbs, categories"
  local wanted found
  expect '^NAME +SHORTNAMES +APIVERSION ' api-resources -o wide
  found=$(resource_lines <<<"$output")
  wanted=$(resource_lines <"$here/api-resources.txt")
  # older versions of kubectl do not show categories
  grep -q ' CATEGORIES' <<<"$found" || wanted=$(sed -E 's/ (CATEGORIES|all|api-extensions)$//' <<<"$wanted")
  [ "$found" = "$wanted" ] ||
    complain "api-resources -o wide" "the list of api-resources.txt" 0 "$(diff <(echo "$wanted") <(echo "$found"))"
}

explain_resources() {
  step "explain --recursive for every resource"
  local line name version kind
  while read -r line; do
    # name, short names where there are any, version, scope, kind
    read -r name version kind < <(awk '{ at = ($3 == "true" || $3 == "false") ? 2 : 3; print $1, $at, $(at + 2) }' <<<"$line")
    expect "^KIND: +$kind$" explain "$name" --api-version="$version" --recursive
    grep -qE '^ +(metadata|apiVersion)[[:space:]]' <<<"$output" || complain "explain $name --recursive" "fields" 0 "$output"
  done < <(tail -n +2 "$here/api-resources.txt")
}

# How many rows the tables of the last output have: every line that is no heading and no warning.
table_rows() { grep -vcE '^$|^Warning: |^(NAME|LAST SEEN) ' <<<"$output"; }

create_samples() {
  step "every sample: create, get as table, wide, yaml and json, delete"
  local kept=$scratch/samples file rows
  rm -rf "$kept" "$kept-asked" "$kept-remote"
  mkdir -p "$kept" "$kept-asked" "$kept-remote"
  for file in "$here"/../samples/*.yaml; do
    case $file in
      # questions, which are answered and not kept
      *Review.yaml) cp "$file" "$kept-asked/" ;;
      # kubectl asks the server behind it, which is not there
      *APIService.yaml) cp "$file" "$kept-remote/" ;;
      *) cp "$file" "$kept/" ;;
    esac
  done
  rows=$(find "$kept" -name '*.yaml' | wc -l)
  expect ' created$' create "$strict" -n default -f "$kept"
  [ "$(grep -c ' created$' <<<"$output")" -eq "$rows" ] || complain "create -f samples" "$rows created" 0 "$output"
  expect '/<unknown> created$' create -n default -f "$kept-asked"
  expect '^NAME ' get -n default -f "$kept"
  [ "$(table_rows)" -eq "$rows" ] || complain "get -f samples" "$rows rows" 0 "$output"
  expect '^NAME ' get -n default -f "$kept" -o wide
  [ "$(table_rows)" -eq "$rows" ] || complain "get -f samples -o wide" "$rows rows" 0 "$output"
  expect '^kind: List$' get -n default -f "$kept" -o yaml
  [ "$(grep -cE '^    uid: [0-9a-f-]{36}$' <<<"$output")" -eq "$rows" ] || complain "get -f samples -o yaml" "$rows objects" 0 "$output"
  expect '"kind": "List"' get -n default -f "$kept" -o json
  [ "$(grep -cE '^                "uid": "[0-9a-f-]{36}"' <<<"$output")" -eq "$rows" ] || complain "get -f samples -o json" "$rows objects" 0 "$output"
  expect ' created$' create "$strict" -f "$kept-remote"
  expect 'deleted' delete --wait=false -f "$kept-remote"
  expect 'deleted' delete --wait=false -n default -f "$kept"
  [ "$(grep -c ' deleted' <<<"$output")" -eq "$rows" ] || complain "delete -f samples" "$rows deleted" 0 "$output"
}
