# images.sh - the images of a session (CONTRACT §2): images/N.png, which a prompt names as [Image #N]. PNG is what the contract
# knows; JPEG, GIF and WebP are kept as they came, under their own endings. The twin of src/session/images.rs.
#
# check_image <file>              whether it can be sent; IMAGE_ERROR and IMAGE_EXIT say why not
# add_image <result-var> <file>   copies it into the open session and gives its number; else as check_image
# What names it in a prompt: "[Image #N]".

# 5 MiB in base64, the least that the three APIs take.
MAX_IMAGE=3932160

check_image() { # <file>   sets IMAGE_ENDING
  local size head problem=''
  IMAGE_ERROR='' IMAGE_EXIT=2 IMAGE_ENDING=''
  if [[ ! -e $1 ]]; then
    problem="there is no such file"
  elif [[ ! -f $1 ]]; then
    problem="it is no regular file"
  elif [[ ! -r $1 ]]; then
    problem="permission denied"
  else
    size=$(($(wc -c <"$1")))
    head=$(od -An -tx1 -N12 <"$1" | tr -d ' \n')
    if ((size > MAX_IMAGE)); then
      problem="it has $size bytes, and models take $MAX_IMAGE at most: scale it down"
    else
      case $head in
      89504e470d0a1a0a*) IMAGE_ENDING=png ;;
      ffd8ff*) IMAGE_ENDING=jpg ;;
      474946383761* | 474946383961*) IMAGE_ENDING=gif ;;
      52494646????????57454250) IMAGE_ENDING=webp ;;
      *) problem="it is no PNG, JPEG, GIF or WebP: convert it to PNG" ;;
      esac
    fi
  fi
  [[ -z $problem ]] && return 0
  IMAGE_ERROR="cannot use the image $1: $problem"
  return 1
}

add_image() { # <result-var> <file>
  local ai_name ai_number=0 ai_target ai_reason
  check_image "$2" || return 1
  for ai_name in "$S"/images/*; do
    ai_name=${ai_name##*/}
    ai_name=${ai_name%%.*}
    [[ $ai_name =~ ^[1-9][0-9]{0,8}$ ]] && ((ai_name > ai_number)) && ai_number=$ai_name
  done
  ai_target=$S/images/$((++ai_number)).$IMAGE_ENDING
  # What a full disk cuts off is no image of the session.
  if ! ai_reason=$({ cat -- "$2" >"$ai_target.tmp" && mv -f -- "$ai_target.tmp" "$ai_target"; } 2>&1); then
    rm -f -- "$ai_target.tmp"
    IMAGE_EXIT=11
    storage_text IMAGE_ERROR write "$ai_target" "$ai_reason"
    return 1
  fi
  printf -v "$1" '%d' "$ai_number"
}

# Whether the session has any.
has_images() {
  local image
  for image in "$S"/images/*; do [[ -e $image ]] && return 0; done
  return 1
}

# --image: looked at before anything is made, copied once the session is open.
check_images() {
  local file
  ((${#OPT_IMAGES[@]})) || return 0
  ((HAS_FIRST)) || usage_error "--image needs something to say about it: give a PROMPT, or pipe it in"
  for file in "${OPT_IMAGES[@]}"; do check_image "$file" || die "$IMAGE_EXIT" "$IMAGE_ERROR"; done
}

attach_images() {
  local file number
  for file in "${OPT_IMAGES[@]+"${OPT_IMAGES[@]}"}"; do
    add_image number "$file" || die "$IMAGE_EXIT" "$IMAGE_ERROR"
    FIRST="$FIRST [Image #$number]"
  done
}
